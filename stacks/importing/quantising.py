"""How a published checkpoint is stored, from its config.json or NVIDIA's hf_quant_config.json next to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stacks.importing.geometry import NotUnderstoodError, Section

_SPOKEN = re.compile(r"fp8|fp4|int4|int8|awq|gptq|w4a16|w8a8", re.IGNORECASE)
# What a part's modules are called in lists of what stays unquantised.
_SIGNS = {"mixers": ("self_attn", "mixer"), "dense": ("mlp.",), "shared": ("shared_expert",)}
# Of the weights' type, in newer and older files.
_TYPE = ("dtype", "torch_dtype")
_NVIDIA = {"FP8": "fp8", "NVFP4": "nvfp4"}


def quantisation(
    config: Mapping[str, Any], shape: Section, *, repository: str = "", nvidia: Mapping[str, Any] | None = None
) -> Section:
    """The stored format and the parts that have it, as the catalogue writes them. Raises NotUnderstoodError.

    shape: the geometry, from which follow the parts that there are.
    nvidia: the parsed hf_quant_config.json, if the repository has one.
    """
    linear = _linear_parts(shape)
    stored = config.get("quantization_config") or config.get("text_config", {}).get("quantization_config")
    if nvidia is not None:
        return _of_nvidia(nvidia.get("quantization", {}), linear)
    if stored and not isinstance(stored, Mapping):
        raise NotUnderstoodError(f"quantization_config: got {stored!r}, allowed: a JSON object")
    if stored:
        return _of_transformers(stored, linear)
    if spoken := _SPOKEN.search(repository):
        raise NotUnderstoodError(
            f"quantization_config: missing, though the repository's name states {spoken.group()}; "
            "fix: give its hf_quant_config.json with --quantisation"
        )
    text = config.get("text_config", {})
    dtype = next((stated for section in (text, config) for key in _TYPE if (stated := section.get(key))), None)
    return {"format": "none", **({"unquantised": dtype} if dtype == "float32" else {})}


def _linear_parts(shape: Section) -> list[str]:
    layers = list(shape["feed_forward"].values())
    kinds = {layer["kind"] for layer in layers}
    parts = ["mixers", *(kind for kind in ("dense", "experts") if kind in kinds)]
    return [*parts, "shared"] if any(layer.get("shared_width") for layer in layers) else parts


def _of_transformers(stored: Mapping[str, Any], linear: list[str]) -> Section:
    method = stored.get("quant_method")
    if method == "fp8":
        return {"format": "fp8-block" if stored.get("weight_block_size") else "fp8", "parts": linear}
    if method == "mxfp4":
        return {"format": "mxfp4", "parts": ["experts"]}
    if method == "compressed-tensors":
        groups = [group.get("weights", {}) for group in stored.get("config_groups", {}).values()]
        if len(groups) == 1 and groups[0].get("num_bits") == 4 and groups[0].get("type") == "int":
            return {"format": "int4", "parts": _kept(linear, stored.get("ignore", []))}
        if len(groups) == 1 and groups[0].get("num_bits") == 8 and groups[0].get("type") == "float":
            return {"format": "fp8", "parts": _kept(linear, stored.get("ignore", []))}
    raise NotUnderstoodError(
        f"quantization_config: got quant_method {method!r}, allowed: fp8, mxfp4, "
        "compressed-tensors with 4-bit integers or 8-bit numbers"
    )


def _of_nvidia(stored: Mapping[str, Any], linear: list[str]) -> Section:
    algorithm = stored.get("quant_algo")
    if algorithm not in _NVIDIA:
        raise NotUnderstoodError(f"quant_algo: got {algorithm!r}, allowed: {', '.join(_NVIDIA)}")
    return {"format": _NVIDIA[algorithm], "parts": _kept(linear, stored.get("exclude_modules", []))}


def _kept(linear: list[str], patterns: list[str]) -> list[str]:
    """Parts of which no module is left out; one module that is, and the whole part counts as unquantised."""
    plain = [pattern.replace("\\", "") for pattern in patterns]

    def left_out(part: str) -> bool:
        return any(
            sign in pattern and not pattern.endswith(("mlp.gate", "router"))
            for sign in _SIGNS.get(part, ())
            for pattern in plain
            if part == "shared" or "shared_expert" not in pattern
        )

    return [part for part in linear if not left_out(part)]
