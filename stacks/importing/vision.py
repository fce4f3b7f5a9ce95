"""Parameters of a vision tower and of the layers that join it to the text model, from a config's vision_config.

Biases and norms are left out, as in `stacks.proof.weights`; they are some 0.1 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stacks.importing.geometry import NotUnderstoodError

Config = Mapping[str, Any]


def vision_parameters(config: Config, *, ignored: frozenset[str] = frozenset()) -> int:
    """Parameters; 0 without a vision_config, or where that key is in `ignored`. Raises NotUnderstoodError.

    config: the whole parsed config.json, as the joining layers depend on the text model too.
    """
    vision = config.get("vision_config")
    if not vision or "vision_config" in ignored:
        return 0
    if not isinstance(vision, Mapping):
        raise NotUnderstoodError(f"vision_config: got {type(vision).__name__}, allowed: a section of keys")
    tower, joined = _KINDS.get(_kind(config, vision), (None, None))
    if tower is None or joined is None:
        raise NotUnderstoodError(
            f"vision_config.model_type: got {_kind(config, vision)!r}, allowed: {', '.join(sorted(_KINDS))}; "
            "fix: teach stacks/importing/vision.py, or --ignore vision_config to count no tower"
        )
    return tower(vision) + joined(vision, _text_hidden(config, vision))


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


def _layers(vision: Config, *, matrices: int) -> int:
    """Attention of as many key-value heads as heads, and a feed-forward block of `matrices`, in each layer."""
    hidden = _hidden(vision)
    width = _number(vision, "intermediate_size", "vt_intermediate_size")
    layers = _number(vision, "num_hidden_layers", "depth", "vt_num_hidden_layers")
    return layers * (4 * hidden**2 + matrices * hidden * width)


def _patches(vision: Config) -> int:
    """The projection of a patch's pixels."""
    pixels = _number(vision, "patch_size") ** 2 * _number(vision, "temporal_patch_size", default=1)
    return pixels * _number(vision, "num_channels", "in_channels", default=3) * _hidden(vision)


def _square(vision: Config) -> int:
    """A learnt position for each patch of a square image."""
    return (_number(vision, "image_size") // _number(vision, "patch_size")) ** 2 * _hidden(vision)


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


def _shuffled(vision: Config, text: int) -> int:
    """Llama 4: pixels move into the vector's depth, then an adapter of two matrices, then one to the text's size."""
    ratio = vision.get("pixel_shuffle_ratio")
    if not isinstance(ratio, float) or not 0 < ratio <= 1:
        raise NotUnderstoodError(
            f"vision_config.pixel_shuffle_ratio: got {ratio!r}, allowed: a number above 0, up to 1"
        )
    between, out = _number(vision, "projector_input_dim"), _number(vision, "projector_output_dim")
    return round(_hidden(vision) / ratio**2) * between + between * out + _number(vision, "vision_output_dim") * text


def _merged_back(vision: Config, text: int) -> int:
    """Mistral: four patches become one of the tower's size, then two matrices to and of the text's size."""
    return 4 * _hidden(vision) ** 2 + _hidden(vision) * text + text**2


_KINDS: Mapping[str, tuple[Callable[[Config], int], Callable[[Config, int], int]]] = {
    "siglip_vision_model": (_siglip, _one_projection),
    "llama4_vision_model": (_llama4, _shuffled),
    "pixtral": (_pixtral, _merged_back),
    "kimi_k25": (_moonvit, _merged),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_5_vision", "qwen3_5_moe_vision"), (_qwen, _merged)),
}
