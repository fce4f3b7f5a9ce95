"""Weights that the engine quantises as it loads them: what it holds then, and what a start has in memory at most.

vLLM converts linear layers and routed experts one module after the other: each is read in 16 bits, quantised, and
replaced. Embeddings, output embeddings, routers and vision towers stay as they are. What the answers lose is in no
figure. Source: https://docs.vllm.ai/en/latest/features/quantization/online, and base.py and fp8.py of vLLM's
model_executor/layers/quantization/online.
"""

from __future__ import annotations

from collections.abc import Mapping

from stacks.facts.catalogue import CatalogueModel, Experts, Quantisation
from stacks.proof.layouts import Layout
from stacks.proof.weights import FORMAT_BITS

_LINEAR = ("mixers", "dense", "experts", "shared")
# Names of vLLM's --quantization that need FP8 units and no calibration: one scale for a matrix, or for 128 x 128 of it.
ONLINE: Mapping[str, Quantisation] = {
    "fp8_per_tensor": Quantisation(format="fp8", parts=_LINEAR),
    "fp8_per_block": Quantisation(format="fp8-block", parts=_LINEAR),
}
_STORED = FORMAT_BITS["none"] / 8


def as_loaded(model: CatalogueModel, method: str) -> CatalogueModel:
    """The model as the engine holds it. Raises KeyError for a method that ONLINE does not have."""
    return model.model_copy(update={"quantisation": ONLINE[method]})


def as_stored(model: CatalogueModel, stored: Quantisation | None) -> CatalogueModel:
    """The model as its files have it."""
    return model.model_copy(update={"quantisation": stored}) if stored else model


def largest_module(model: CatalogueModel, layout: Layout) -> float:
    """Bytes on one GPU of the largest module in 16 bits: all experts of a layer, or the first matrices of a dense one.

    A start holds it beside the weights that are quantised already, and beside its own quantised copy.
    """
    return max(
        _STORED * layer.experts * layer.matrices * model.hidden * layer.width / (layout.tensor * layout.data)
        if isinstance(layer, Experts)
        else _STORED * (layer.matrices - 1) * model.hidden * layer.width / layout.tensor
        for layer in model.feed_forward.values()
    )
