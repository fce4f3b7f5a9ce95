"""Time of one engine step, by a roofline: work and memory traffic of each part over what kernels reach of the peak.

Work and traffic are added, not overlapped: the recorded timings fit the sum better than the larger of both, because a
step is many kernels that each wait for one of the two. The efficiencies are fitted to recorded estimates of
AIConfigurator 0.12 (kernel timings of vLLM 0.14 to 0.24 on H100 and H200), see docs/proof.md; tests hold the fit to its
stated band. Other GPUs borrow them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Part
from stacks.facts.hardware import Gpu, Precision
from stacks.proof.cache import KvDtype, token_bytes
from stacks.proof.layouts import Layout, experts_of, layer_count
from stacks.proof.weights import Parameters, WeightBytes, parameters, weight_bytes


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What serving kernels reach of the peak, and fixed costs in seconds."""

    compute: dict[str, float]
    """Share of peak operations by storage format, large batches."""
    bandwidth: dict[str, float]
    """Share of peak bandwidth when weights of that format are read."""
    expert_compute: float
    """Further factor on the share of peak operations for routed experts."""
    expert_bandwidth: float
    """Further factor on bandwidth for routed experts."""
    cache_bandwidth: float
    """Share of peak bandwidth when a decode step reads caches."""
    attention_compute: float
    """Share of peak bf16 operations of prefill attention."""
    latent_compute: float
    """The same for latent attention in decode, whose heads share one vector."""
    link: float
    """Share of the links' bandwidth in a collective."""
    layer_s: float
    """A layer's kernel launches and small kernels."""
    block_layer_s: float
    """More for a layer of block-quantised FP8, whose activations are quantised at every step."""
    sparse_layer_s: float
    """More for a layer with an indexer."""
    sparse_token_s: float
    """More for each token of a prefill in a layer with an indexer."""
    collective_s: float
    """Latency of one collective."""
    step_s: float
    """Scheduling and sampling of one step."""


CALIBRATION = Calibration(
    # int4 and nvfp4 are not in the recorded timings; estimated from a few estimates of the same source.
    compute={"none": 0.89, "fp8": 0.715, "fp8-block": 0.532, "mxfp4": 0.95, "nvfp4": 0.5, "int4": 0.4},
    bandwidth={"none": 0.95, "fp8": 0.861, "fp8-block": 0.95, "mxfp4": 0.662, "nvfp4": 0.662, "int4": 0.4},
    expert_compute=0.337,
    expert_bandwidth=1.04,
    cache_bandwidth=0.95,
    attention_compute=0.589,
    latent_compute=0.727,
    link=0.493,
    layer_s=7.5e-6,
    block_layer_s=84.5e-6,
    sparse_layer_s=48.6e-6,
    sparse_token_s=1.04e-6,
    collective_s=11.8e-6,
    step_s=1.48e-3,
)

_FP8_FORMATS = ("fp8", "fp8-block")


class Roofline:
    """Step times of one model on one layout. Arithmetic on floats; build once, ask often."""

    def __init__(
        self,
        model: CatalogueModel,
        gpu: Gpu,
        layout: Layout,
        dtype: KvDtype,
        calibration: Calibration = CALIBRATION,
    ) -> None:
        self._model, self._gpu, self._layout, self._fit = model, gpu, layout, calibration
        self._counts: Parameters = parameters(model)
        self._sizes: WeightBytes = weight_bytes(model)
        self._layers = layer_count(model)
        self._blocks = self._layers + sum(layer.count for layer in model.feed_forward.values())
        self._dtype = dtype
        self._linear = [
            self._part("mixers", self._counts.mixers / layout.tensor, self._sizes.mixers / layout.tensor),
            self._part("mixers", self._counts.replicated, self._sizes.replicated),
            self._part("embeddings", self._counts.routers, self._sizes.routers),
            self._part("dense", self._counts.dense / layout.tensor, self._sizes.dense / layout.tensor),
            self._part("shared", self._counts.shared / layout.tensor, self._sizes.shared / layout.tensor),
        ]
        divided = layout.tensor * layout.data
        fit = calibration
        weight, traffic = self._part("experts", self._counts.active_experts / divided, self._sizes.experts / divided)
        self._experts = (weight / fit.expert_compute, traffic / fit.expert_bandwidth)
        self._head = self._part("embeddings", self._counts.head / layout.tensor, self._sizes.head / layout.tensor)
        self._routed = [(layer.count, layer.experts, layer.chosen) for layer in experts_of(model)]
        self._routed_layers = sum(count for count, _, _ in self._routed)
        self._sparse_layers = sum(
            mixer.count
            for mixer in model.mixers.values()
            if isinstance(mixer, catalogue.LatentAttention) and mixer.indexer_heads
        )
        self._link = self._link_bytes_per_s()
        blocked = model.quantisation.format == "fp8-block"
        self._launch_s = fit.layer_s + (fit.block_layer_s if blocked else 0.0)

    def _part(self, part: Part, count: float, size: float) -> tuple[float, float]:
        """Seconds of work a token, and seconds to read the part once."""
        kind = self._model.quantisation.format if part in self._model.quantisation.parts else "none"
        precision: Precision = "bf16"
        if kind in _FP8_FORMATS and "fp8" in self._gpu.flops:
            precision = "fp8"
        elif "fp4" in self._gpu.flops and kind in ("mxfp4", "nvfp4"):
            # MXFP4 weights meet FP8 activations, NVFP4 weights their like; older GPUs unpack both to bf16.
            precision = "fp8" if kind == "mxfp4" else "fp4"
        work = 2 * count / (self._gpu.flops_at(precision) * self._fit.compute[kind])
        return work, size / (self._gpu.memory_bytes_per_s * self._fit.bandwidth[kind])

    def _link_bytes_per_s(self) -> float:
        """What a collective of the tensor and data ranks has; over the network once they leave the links' domain."""
        ranks = self._layout.tensor * self._layout.data
        gpu = self._gpu
        return (gpu.link_bytes_per_s if ranks <= gpu.link_domain else gpu.network_bytes_per_s) * self._fit.link

    def step_s(self, *, prefill: float = 0.0, reach: float = 0.0, decodes: float = 0.0, context: float = 0.0) -> float:
        """Seconds of one step on one scheduler's GPUs.

        prefill: prompt tokens in the step. reach: tokens that one of them attends to on average. decodes: requests that
        get one token each. context: tokens that each of those has. All of one data-parallel rank; the others do alike.
        """
        tokens = prefill + decodes
        if not tokens:
            return 0.0
        fit = self._fit
        total = fit.step_s + self._blocks * self._launch_s
        total += sum(work * tokens + read for work, read in self._linear)
        total += self._head[0] * max(decodes, 1.0) + self._head[1]
        if self._routed:
            together = tokens * self._layout.data
            work, read = self._experts
            total += work * together + read * self._touched(together)
        total += self._attention_s(prefill, reach, decodes, context)
        total += self._collectives_s(tokens)
        total += self._sparse_layers * (fit.sparse_layer_s + fit.sparse_token_s * prefill)
        return total

    def _touched(self, tokens: float) -> float:
        """Share of the routed experts' bytes that a step reads, if tokens choose evenly: 1 - (1 - k/E)^n."""
        shares = sum(count * (1 - math.pow(1 - chosen / experts, tokens)) for count, experts, chosen in self._routed)
        return shares / self._routed_layers

    def _attention_s(self, prefill: float, reach: float, decodes: float, context: float) -> float:
        """Scores and values of prompts (work), and caches and states that decodes read (traffic)."""
        work = read = latent = 0.0
        tensor = self._layout.tensor
        for mixer in self._model.mixers.values():
            size = token_bytes(mixer, ranks=tensor, dtype=self._dtype)
            match mixer:
                case catalogue.SlidingAttention():
                    work += (
                        mixer.count * 4 * mixer.heads * mixer.head_size / tensor * prefill * min(reach, mixer.window)
                    )
                    read += mixer.count * size * decodes * min(context, mixer.window)
                case catalogue.FullAttention() | catalogue.Encoder():
                    work += mixer.count * 4 * mixer.heads * mixer.head_size / tensor * prefill * reach
                    read += mixer.count * size * decodes * context
                case catalogue.LatentAttention():
                    seen = min(reach, mixer.indexer_tokens or reach)
                    heads = mixer.heads / tensor
                    work += mixer.count * 2 * heads * (mixer.nope + mixer.rope + mixer.value_size) * prefill * seen
                    kept = min(context, mixer.indexer_tokens or context)
                    read += mixer.count * size * decodes * kept
                    latent += mixer.count * 2 * heads * (2 * mixer.latent + mixer.rope) * decodes * kept
                    if mixer.indexer_heads:
                        index = 2 * mixer.indexer_heads * mixer.indexer_size
                        work += mixer.count * index * prefill * reach
                        read += mixer.count * mixer.indexer_size * decodes * context
                case catalogue.DeltaNet():
                    state = mixer.value_heads * mixer.key_size * mixer.value_size / tensor
                    work += mixer.count * 6 * state * prefill
                    read += mixer.count * 8 * state * decodes
                case catalogue.Mamba():
                    state = mixer.heads * mixer.head_size * mixer.state / tensor
                    work += mixer.count * 6 * state * prefill
                    read += mixer.count * 8 * state * decodes
        fit, peak = self._fit, self._gpu.flops_at("bf16")
        decode = max(read / (self._gpu.memory_bytes_per_s * fit.cache_bandwidth), latent / (peak * fit.latent_compute))
        return work / (peak * fit.attention_compute) + decode

    def _collectives_s(self, tokens: float) -> float:
        """All-reduces of tensor parallelism, two a layer; dispatch and combine of expert parallelism."""
        layout, fit, vector = self._layout, self._fit, 2 * self._model.hidden
        total = 0.0
        if layout.tensor > 1:
            size = 2 * (layout.tensor - 1) / layout.tensor * tokens * vector
            total += self._blocks * (fit.collective_s + size / self._link)
        if layout.data > 1 and self._routed:
            ranks = layout.tensor * layout.data
            sent = tokens / layout.tensor * min(self._routed[0][2], ranks) * vector * (1 - 1 / ranks)
            total += self._routed_layers * 2 * (fit.collective_s + sent / self._link)
        if layout.pipeline > 1:
            hop = self._gpu.link_bytes_per_s if layout.gpus <= self._gpu.link_domain else self._gpu.network_bytes_per_s
            total += (layout.pipeline - 1) * (fit.collective_s + tokens * vector / hop)
        return total
