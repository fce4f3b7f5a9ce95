"""A vision tower and the layers that join it to the text model, from a config's vision_config.

Of the parameters, biases and norms are left out, as in `stacks.proof.weights`; they are some 0.1 %. The largest picture
is the one that processors of the family make by default, as vLLM 0.32 runs it when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stacks.importing.geometry import NotUnderstoodError

Config = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Family:
    """How to read the towers of one family."""

    tower: Callable[[Config], int]
    """Parameters of the tower."""
    joined: Callable[[Config, int], int]
    """Parameters of what joins it to a text model with vectors of so many elements."""
    largest: Callable[[Config, Config], tuple[int, int]]
    """Patches of the largest picture, and vectors that become of them; by the whole config and the tower's."""
    matrices: int = 2
    """Of a feed-forward block."""


def vision_parameters(config: Config, *, ignored: frozenset[str] = frozenset()) -> int:
    """Parameters; 0 without a vision_config, or where that key is in `ignored`. Raises NotUnderstoodError.

    config: the whole parsed config.json, as the joining layers depend on the text model too.
    """
    vision = _section(config, ignored)
    if not vision:
        return 0
    family = _family(config, vision)
    return family.tower(vision) + family.joined(vision, _text_hidden(config, vision))


def vision_tower(config: Config, *, ignored: frozenset[str] = frozenset()) -> dict[str, int]:
    """The tower's size and its largest picture, as a catalogue file has them; empty without a tower.

    Raises NotUnderstoodError.
    """
    vision = _section(config, ignored)
    if not vision:
        return {}
    family = _family(config, vision)
    patches, tokens = family.largest(config, vision)
    return {
        "patches": patches,
        "tokens": tokens,
        "pixels": _pixels(vision),
        "hidden": _hidden(vision),
        "width": _width(vision),
        **({"matrices": family.matrices} if family.matrices > 2 else {}),
    }


def _section(config: Config, ignored: frozenset[str]) -> Config:
    """The tower's part of the config; empty where there is none."""
    vision = config.get("vision_config")
    if not vision or "vision_config" in ignored:
        return {}
    if not isinstance(vision, Mapping):
        raise NotUnderstoodError(f"vision_config: got {type(vision).__name__}, allowed: a section of keys")
    return vision


def _family(config: Config, vision: Config) -> _Family:
    family = _KINDS.get(_kind(config, vision))
    if family is None:
        raise NotUnderstoodError(
            f"vision_config.model_type: got {_kind(config, vision)!r}, allowed: {', '.join(sorted(_KINDS))}; "
            "fix: teach stacks/importing/vision.py, or --ignore vision_config to count no tower"
        )
    return family


def _kind(config: Config, vision: Config) -> str:
    """The tower's own name; Kimi's has none, and is known by the whole model's."""
    return str(vision.get("model_type") or config.get("model_type"))


def _text_hidden(config: Config, vision: Config) -> int:
    return _number(vision, "out_hidden_size", "text_hidden_size", default=0) or _number(
        config.get("text_config") or config, "hidden_size"
    )


def _number(section: Config, *names: str, default: int | None = None) -> int:
    for name in names:
        value = section.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    if default is None:
        raise NotUnderstoodError(f"vision_config.{' or '.join(names)}: missing, or not a whole number")
    return default


def _hidden(vision: Config) -> int:
    return _number(vision, "hidden_size", "vt_hidden_size")


def _width(vision: Config) -> int:
    return _number(vision, "intermediate_size", "vt_intermediate_size")


def _layers(vision: Config, *, matrices: int) -> int:
    """Attention of as many key-value heads as heads, and a feed-forward block of `matrices`, in each layer."""
    hidden, width = _hidden(vision), _width(vision)
    layers = _number(vision, "num_hidden_layers", "depth", "vt_num_hidden_layers")
    return layers * (4 * hidden**2 + matrices * hidden * width)


def _pixels(vision: Config) -> int:
    """Values of a patch."""
    pixels = _number(vision, "patch_size") ** 2 * _number(vision, "temporal_patch_size", default=1)
    return pixels * _number(vision, "num_channels", "in_channels", default=3)


def _patches(vision: Config) -> int:
    """The projection of a patch's pixels."""
    return _pixels(vision) * _hidden(vision)


def _square_patches(vision: Config, *, default: int | None = None) -> int:
    """Patches of a square image."""
    return (_number(vision, "image_size", default=default) // _number(vision, "patch_size")) ** 2


def _square(vision: Config) -> int:
    """A learnt position for each patch of a square image."""
    return _square_patches(vision) * _hidden(vision)


def _siglip(vision: Config) -> int:
    return _layers(vision, matrices=2) + _patches(vision) + _square(vision)


def _llama4(vision: Config) -> int:
    """With one position more, of the token of the whole image."""
    return _siglip(vision) + 2 * _hidden(vision)


def _pixtral(vision: Config) -> int:
    """Gated feed-forward layers, and positions by rotation alone."""
    return _layers(vision, matrices=3) + _patches(vision)


def _qwen(vision: Config) -> int:
    return _layers(vision, matrices=2) + _patches(vision) + _number(vision, "num_position_embeddings") * _hidden(vision)


def _moonvit(vision: Config) -> int:
    positions = _number(vision, "init_pos_emb_height") * _number(vision, "init_pos_emb_width")
    return _layers(vision, matrices=2) + _patches(vision) + positions * _hidden(vision)


def _one_projection(vision: Config, text: int) -> int:
    """Gemma 3: one matrix."""
    return _hidden(vision) * text


def _merged(vision: Config, text: int) -> int:
    """Qwen and Kimi: neighbouring patches become one vector, which two matrices bring to the text's size."""
    kernel = vision.get("merge_kernel_size")
    merge = _number(vision, "spatial_merge_size", default=0) ** 2
    if isinstance(kernel, list) and len(kernel) == 2 and all(isinstance(side, int) for side in kernel):
        merge = kernel[0] * kernel[1]
    if not merge:
        raise NotUnderstoodError("vision_config.spatial_merge_size or merge_kernel_size: missing")
    joined = _hidden(vision) * merge
    return joined**2 + joined * text


def _ratio(vision: Config) -> float:
    ratio = vision.get("pixel_shuffle_ratio")
    if not isinstance(ratio, float) or not 0 < ratio <= 1:
        raise NotUnderstoodError(
            f"vision_config.pixel_shuffle_ratio: got {ratio!r}, allowed: a number above 0, up to 1"
        )
    return ratio


def _shuffled(vision: Config, text: int) -> int:
    """Llama 4: pixels move into the vector's depth, then an adapter of two matrices, then one to the text's size."""
    ratio = _ratio(vision)
    between, out = _number(vision, "projector_input_dim"), _number(vision, "projector_output_dim")
    return round(_hidden(vision) / ratio**2) * between + between * out + _number(vision, "vision_output_dim") * text


def _merged_back(vision: Config, text: int) -> int:
    """Mistral: four patches become one of the tower's size, then two matrices to and of the text's size."""
    return 4 * _hidden(vision) ** 2 + _hidden(vision) * text + text**2


def _gemma_picture(config: Config, vision: Config) -> tuple[int, int]:
    """Every picture is scaled to the same square."""
    return _square_patches(vision), _number(config, "mm_tokens_per_image", default=256)


def _pixtral_picture(config: Config, vision: Config) -> tuple[int, int]:
    """As many patches as a square has, of 1,540 pixels a side by default."""
    patches = _square_patches(vision, default=1540)
    return patches, patches // _number(config, "spatial_merge_size", default=2) ** 2


def _qwen_picture(_: Config, vision: Config) -> tuple[int, int]:
    """The processor's longest_edge: 16,777,216 pixels."""
    patches = 4096**2 // _number(vision, "patch_size") ** 2
    return patches, patches // _number(vision, "spatial_merge_size") ** 2


def _moonvit_picture(_config: Config, _vision: Config) -> tuple[int, int]:
    """The processor's limit of 16,384 patches, a side of the square rounded up to whole vectors of four patches."""
    return 130**2, 65**2


def _llama4_picture(_: Config, vision: Config) -> tuple[int, int]:
    """The processor's 16 tiles, and the whole as one more; with a token of the tile, which the text does not get."""
    patches, tiles = _square_patches(vision), 16 + 1
    return tiles * (patches + 1), tiles * round(patches * _ratio(vision) ** 2)


_QWEN = _Family(tower=_qwen, joined=_merged, largest=_qwen_picture)
_KINDS: Mapping[str, _Family] = {
    "siglip_vision_model": _Family(tower=_siglip, joined=_one_projection, largest=_gemma_picture),
    "llama4_vision_model": _Family(tower=_llama4, joined=_shuffled, largest=_llama4_picture),
    "pixtral": _Family(tower=_pixtral, joined=_merged_back, largest=_pixtral_picture, matrices=3),
    "kimi_k25": _Family(tower=_moonvit, joined=_merged, largest=_moonvit_picture),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_vision", "qwen3_5_moe_vision"), _QWEN),
}
