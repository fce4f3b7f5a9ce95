"""Time of one engine step, by a roofline: work and memory traffic of each part over what kernels reach of the peak.

Work and traffic are added, not overlapped: the recorded timings fit the sum better than the larger of both, because a
step is many kernels that each wait for one of the two. Tokens also move vectors between kernels, and a running engine
takes longer than its kernels alone. The constants are fitted to recorded estimates of AIConfigurator 0.12 (sums of
kernel timings of vLLM 0.14 to 0.24 on H100 and H200) and, together with these, to half of the published runs of
benchmarks/published.yaml; see docs/proof.md. Tests hold both to their stated bands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, Part
from stacks.facts.hardware import Gpu, Precision
from stacks.proof.attention import Attention
from stacks.proof.cache import KvDtype
from stacks.proof.collectives import hops_of, links_between
from stacks.proof.layouts import Layout, experts_of, layer_count
from stacks.proof.weights import Parameters, WeightBytes, parameters, weight_bytes


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What serving kernels reach of the peak, and fixed costs in seconds."""

    compute: dict[str, float]
    """Share of peak operations by storage format, large batches."""
    bandwidth: dict[str, float]
    """Share of peak bandwidth when weights of that format are read."""
    expert_compute: dict[str, float]
    """The same of routed experts; `format@family` for a family of GPUs with other kernels than the rest."""
    expert_bandwidth: float
    """Further factor on bandwidth for routed experts."""
    cache_bandwidth: float
    """Share of peak bandwidth when a decode step reads caches."""
    attention_compute: float
    """Share of peak bf16 operations of prefill attention."""
    sink_compute: float
    """The same of attention with sinks on GPUs older than Hopper, for which vLLM has a Triton kernel alone."""
    latent_compute: float
    """The same for latent attention in decode, whose heads share one vector."""
    link: float
    """Share of NVLink's bandwidth in a collective, and of the network's."""
    layer_s: float
    """A layer's kernel launches and small kernels."""
    block_layer_s: float
    """More for a layer of block-quantised FP8, whose activations are quantised at every step."""
    sparse_layer_s: float
    """More for a layer with an indexer."""
    sparse_token_s: float
    """More for each token of a prefill in a layer with an indexer."""
    collective_s: float
    """Latency of one collective over NVLink."""
    step_s: float
    """Scheduling and sampling of one step."""
    token_vectors: float
    """Vectors of the hidden size that a token's norms, positions, activations and residuals move in a block."""
    expert_vectors: float
    """The same for each expert that a token passes: its copy on the way in, its inner vectors, its answer."""
    expert_imbalance: float
    """Work of the busiest rank over the mean, where whole experts are divided over ranks."""
    request_s: float
    """Scheduling, sampling and detokenising of one more request of a step."""
    engine: float
    """A running engine's step over the sum of its kernels' times: gaps between kernels, copies, clocks under load."""


CALIBRATION = Calibration(
    # int4, and mxfp4 outside of experts, are in no timing: estimated from their like.
    compute={"none": 0.815, "fp8": 0.861, "fp8-block": 0.568, "mxfp4": 0.54, "nvfp4": 0.54, "int4": 0.4},
    expert_compute={
        "none": 0.52,
        "none@ampere": 0.231,
        "fp8": 0.317,
        "fp8-block": 0.195,
        "mxfp4": 0.262,
        "mxfp4@ampere": 0.482,
        "mxfp4@blackwell": 0.298,
        "nvfp4": 0.193,
        "int4": 0.135,
    },
    bandwidth={"none": 0.95, "fp8": 0.89, "fp8-block": 0.942, "mxfp4": 0.67, "nvfp4": 0.647, "int4": 0.4},
    expert_bandwidth=1.03,
    cache_bandwidth=0.95,
    attention_compute=0.63,
    sink_compute=0.14,
    latent_compute=0.892,
    link=0.691,
    layer_s=7.26e-6,
    block_layer_s=82.1e-6,
    sparse_layer_s=45.6e-6,
    sparse_token_s=0.796e-6,
    collective_s=12.1e-6,
    step_s=1.5e-3,
    token_vectors=4.38,
    expert_vectors=3.39,
    expert_imbalance=1.25,
    request_s=5.37e-6,
    engine=1.13,
)


def kernels_of(calibration: Calibration) -> Calibration:
    """Without what a running engine adds: to compare with sources that add kernel timings up."""
    return replace(calibration, engine=1.0, request_s=0.0)


KERNELS = kernels_of(CALIBRATION)

_NORMAL = NormalDist()
_FP8_FORMATS = ("fp8", "fp8-block")
# FlashAttention 2 takes no sinks, and 3 needs Hopper (vLLM 0.32, page "Attention Backend Feature Support").
_WITHOUT_FAST_SINKS = ("ampere", "ada-lovelace")


def pipelined_s(layers: float, head: float, *, count: int, stages: int) -> float:
    """Seconds of a batch through `stages` that each have one: at every hand-over all wait for the slowest.

    layers: seconds of all `count` layers. head: seconds of the output, which the last stage has; layers that are left
    over are on stages before it (get_pp_indices, vLLM 0.32 distributed/utils.py).
    """
    if stages == 1:
        return layers + head
    most, last = math.ceil(count / stages), count // stages
    return stages * max(layers * most / count, layers * last / count + head)


class Roofline:
    """Step times of one model on one layout. Arithmetic on floats; build once, ask often."""

    def __init__(
        self,
        model: CatalogueModel,
        gpu: Gpu,
        layout: Layout,
        dtype: KvDtype,
        calibration: Calibration = CALIBRATION,
        pace: float = 1.0,
    ) -> None:
        """pace: factor on the time of every step; 2 is an engine that is half as fast."""
        self._model, self._gpu, self._layout, self._fit = model, gpu, layout, calibration
        self._pace = pace
        self._counts: Parameters = parameters(model)
        self._sizes: WeightBytes = weight_bytes(model)
        self._layers = layer_count(model)
        self._blocks = self._layers + sum(layer.count for layer in model.feed_forward.values())
        self._dtype = dtype
        linear = [
            self._part("mixers", self._counts.mixers / layout.tensor, self._sizes.mixers / layout.tensor),
            self._part("mixers", self._counts.replicated, self._sizes.replicated),
            self._part("embeddings", self._counts.routers, self._sizes.routers),
            self._part("dense", self._counts.dense / layout.tensor, self._sizes.dense / layout.tensor),
            self._part("shared", self._counts.shared / layout.tensor, self._sizes.shared / layout.tensor),
        ]
        divided = layout.tensor * layout.data
        fit = calibration
        work, traffic = self._part("experts", self._counts.active_experts / divided, self._sizes.experts / divided)
        if layout.expert_parallel:
            work *= fit.expert_imbalance
        self._experts = (work, traffic / fit.expert_bandwidth)
        self._head = self._part("embeddings", self._counts.head / layout.tensor, self._sizes.head / layout.tensor)
        self._routed = [(layer.count, layer.experts, layer.chosen) for layer in experts_of(model)]
        self._routed_layers = sum(count for count, _, _ in self._routed)
        self._vector = 2 * model.hidden
        self._tensor_links = links_between(gpu, layout.tensor, latency_s=fit.collective_s, share=fit.link)
        self._expert_links = links_between(gpu, divided, latency_s=fit.collective_s, share=fit.link)
        self._hops = hops_of(gpu, layout, self._vector, latency_s=fit.collective_s, share=fit.link)
        blocked = model.quantisation.format == "fp8-block"
        launch_s = fit.layer_s + (fit.block_layer_s if blocked else 0.0)
        sparse_layers = sum(
            mixer.count
            for mixer in model.mixers.values()
            if isinstance(mixer, catalogue.LatentAttention) and mixer.indexer_heads
        )
        # A step's parts that grow with nothing, with its tokens, and with those of prompts.
        together_s, together_token_s = self._collectives_s()
        self._fixed_s = self._blocks * launch_s + sparse_layers * fit.sparse_layer_s + together_s
        self._fixed_s += sum(read for _, read in linear)
        self._token_s = self._vector_s() + together_token_s + sum(work for work, _ in linear)
        self._prompt_token_s = sparse_layers * fit.sparse_token_s
        self._attention = Attention(model, tensor=layout.tensor, dtype=dtype)
        peak = gpu.flops_at("bf16")
        slow = model.attention_sinks and gpu.family in _WITHOUT_FAST_SINKS
        self._scores_per_s = peak * (fit.sink_compute if slow else fit.attention_compute)
        self._latents_per_s = peak * fit.latent_compute
        self._caches_per_s = gpu.memory_bytes_per_s * fit.cache_bandwidth
        ranks = divided if layout.expert_parallel else 1
        # Deviations of the largest of so many normal variables (Blom 1958).
        self._most = _NORMAL.inv_cdf((ranks - 0.375) / (ranks + 0.25)) if ranks > 1 else 0.0
        self._ranks = ranks

    def _part(self, part: Part, count: float, size: float) -> tuple[float, float]:
        """Seconds of work a token, and seconds to read the part once."""
        kind = self._model.quantisation.format if part in self._model.quantisation.parts else "none"
        precision: Precision = "bf16"
        if kind in _FP8_FORMATS and "fp8" in self._gpu.flops:
            precision = "fp8"
        elif "fp4" in self._gpu.flops and kind in ("mxfp4", "nvfp4"):
            # MXFP4 weights meet FP8 activations, NVFP4 weights their like; older GPUs unpack both to bf16.
            precision = "fp8" if kind == "mxfp4" else "fp4"
        shares = self._fit.expert_compute if part == "experts" else self._fit.compute
        reached = shares.get(f"{kind}@{self._gpu.family}", shares[kind])
        work = 2 * count / (self._gpu.flops_at(precision) * reached)
        return work, size / (self._gpu.memory_bytes_per_s * self._fit.bandwidth[kind])

    def _vector_s(self) -> float:
        """Seconds that one token of a scheduler moves vectors, over all layers, besides weights and caches."""
        layout, fit = self._layout, self._fit
        # Sliced experts: every rank has a copy of each rank's tokens for each chosen expert. Whole ones: spread copies.
        spread = 1 / layout.tensor if layout.expert_parallel else layout.data
        copies = spread * sum(count * chosen for count, _, chosen in self._routed)
        moved = fit.token_vectors * self._blocks + fit.expert_vectors * copies
        return moved * 2 * self._model.hidden / self._gpu.memory_bytes_per_s

    def step_s(
        self,
        *,
        prefill: float = 0.0,
        reach: float = 0.0,
        decodes: float = 0.0,
        context: float = 0.0,
        alone: bool = False,
    ) -> float:
        """Seconds of one step on one scheduler's GPUs; of a pipeline, through all of its stages.

        prefill: prompt tokens in the step. reach: tokens that one of them attends to on average. decodes: requests that
        get one token each. context: tokens that each of those has. All of one data-parallel rank; the others do alike.
        alone: no other batch is in the pipeline.
        """
        return self.wide_step_s(prefill=prefill, reach=reach, decodes=decodes, context=context, alone=alone)

    def wide_step_s(
        self,
        *,
        prefill: float = 0.0,
        reach: float = 0.0,
        decodes: float = 0.0,
        context: float = 0.0,
        alone: bool = False,
        width: float = 1.0,
        sampled: float = 1.0,
    ) -> float:
        """A step that computes `width` tokens of each request that decodes, and the logits of `sampled` of these.

        Weights and caches are read once for all of them. The rest is as in `step_s`.
        """
        tokens = prefill + decodes * width
        if not tokens:
            return 0.0
        fit = self._fit
        layers = self._fixed_s + tokens * self._token_s + prefill * self._prompt_token_s
        if self._routed:
            together = tokens * self._layout.data
            work, read = self._experts
            layers += work * together + read * self._touched(together)
        layers += self._attention_s(prefill, reach, decodes, context, width)
        head = self._head[0] * max(decodes * sampled, 1.0) + self._head[1]
        stages = 1 if alone else self._layout.pipeline
        total = fit.step_s + decodes * sampled * fit.request_s
        total += pipelined_s(layers, head, count=self._layers, stages=stages)
        total += self._hops.fixed_s + tokens * self._hops.token_s
        return total * fit.engine * self._pace

    def between_nodes_s(self, tokens: float) -> float:
        """Of a step of so many tokens, the seconds in which a batch is on its way between nodes."""
        hops = self._hops
        return (hops.network_fixed_s + tokens * hops.network_token_s) * self._fit.engine * self._pace

    def at(self, pace: float) -> Roofline:
        """The same engine, each of whose steps takes `pace` times as long as of this one."""
        return Roofline(self._model, self._gpu, self._layout, self._dtype, self._fit, self._pace * pace)

    def _touched(self, tokens: float) -> float:
        """Share of its experts' bytes that the busiest rank reads in a step, if tokens choose evenly.

        An expert is chosen with p = 1 - (1 - k/E)^n. Where whole experts are divided over R ranks, all wait for the one
        with most: p + c sqrt(p (1 - p) R / E), with c the mean of the largest of R normal variables.
        """
        total = 0.0
        for count, experts, chosen in self._routed:
            share = 1 - math.pow(1 - chosen / experts, tokens)
            if self._most:
                share = min(1.0, share + self._most * math.sqrt(share * (1 - share) * self._ranks / experts))
            total += count * share
        return total / self._routed_layers

    def _attention_s(self, prefill: float, reach: float, decodes: float, context: float, width: float) -> float:
        """Work of prompts' scores and values, and of running requests the longer of reading and scoring."""
        seconds = self._attention.prompt(prefill, reach) / self._scores_per_s if prefill else 0.0
        if decodes:
            read, latent, scores = self._attention.decode(decodes, context, width)
            computed = latent / self._latents_per_s + scores / self._scores_per_s
            seconds += max(read / self._caches_per_s, computed)
        return seconds

    def _collectives_s(self) -> tuple[float, float]:
        """All-reduces of tensor parallelism, two a layer; dispatch and combine of expert parallelism.

        Seconds of a step, and more for each of its tokens.
        """
        layout, vector = self._layout, self._vector
        fixed_s = token_s = 0.0
        if layout.tensor > 1:
            links = self._tensor_links
            size = 2 * (layout.tensor - 1) / layout.tensor * vector
            fixed_s += self._blocks * links.latency_s
            token_s += self._blocks * size / links.bytes_per_s
        if layout.data > 1 and self._routed:
            links, ranks = self._expert_links, layout.tensor * layout.data
            sent = min(self._routed[0][2], ranks) / layout.tensor * vector * (1 - 1 / ranks)
            fixed_s += self._routed_layers * 2 * links.latency_s
            token_s += self._routed_layers * 2 * sent / links.bytes_per_s
        return fixed_s, token_s
