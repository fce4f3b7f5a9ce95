"""What collectives and the hops of a pipeline take, by the links that they run over.

Latency and share of NVLink are fitted (`roofline.CALIBRATION`). Those of PCIe and of the network are read off public
measurements, each named at its constant; nothing was fitted to them, and this project measured none of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stacks.facts.hardware import Gpu
from stacks.proof.layouts import Layout

# An all-reduce over PCIe is a ring of NCCL: a start and 2 (n - 1) steps. vLLM's own kernel is for NVLink or two GPUs
# (vllm/distributed/device_communicators/custom_all_reduce.py; vllm-project/vllm#56128).
# Start: baseLatencies, Ring LL, of NVIDIA/nccl src/graph/tuning.cc, which has 1.0 (LL) to 5.7 us (Simple) for a step.
_PCIE_START_S = 6.6e-6
# Step: 19.4 us for 4 KB over four GPUs of one switch (haohervchb/sglang-V100#2), 24.2 us over eight on switches
# (voipmonitor/rtx6kpro hardware/pcie-bandwidth.md), 42 and 54 us over eight on two sockets (NVIDIA/nccl#1530, #1439).
_PCIE_STEP_S = 2.2e-6
# Share of a PCIe link in large ones: 35 of 64 GB/s with four GPUs and 28 with eight (NVIDIA/nccl#1639); 22 to 41 with
# eight (voipmonitor/rtx6kpro); 35 with two and 26 with eight in all-gathers (flashinfer-ai/flashinfer#5023).
_PCIE_SHARE, _PCIE_MANY_SHARE = 0.55, 0.40
# GPUs on one socket or switch.
_PCIE_FEW = 4
# One step between nodes, of which a tree has 2 log2(nodes): hwLatencies, NET, Simple, of NVIDIA/nccl tuning.cc. Two
# nodes then take 40 us; public runs take 40 to 93 (NVIDIA/nccl-tests#182, NVIDIA/nccl#812).
_NETWORK_STEP_S = 14.0e-6
# One hop between stages: `p2p_latency` of AIConfigurator's systems (ai-dynamo/aiconfigurator systems/*.yaml).
_HOP_S = 10.0e-6
# vLLM sends hidden states and residual, each rank a slice, and the next stage gathers both (GroupCoordinator's
# send_tensor_dict with all_gather_group; IntermediateTensors of its models).
_HOP_VECTORS = 2


@dataclass(frozen=True, kw_only=True)
class Links:
    """What a group of ranks reaches each other over."""

    latency_s: float
    """Of one all-reduce, or of a dispatch and a combine each."""
    bytes_per_s: float
    """That each rank sends in it."""


def links_between(gpu: Gpu, ranks: int, *, latency_s: float, share: float) -> Links:
    """Links of `ranks` GPUs that fill one domain after the other.

    latency_s, share: of a collective over NVLink, and of its bandwidth; the share holds for the network as well.
    """
    domains = math.ceil(ranks / gpu.link_domain)
    inner = min(ranks, gpu.link_domain)
    bytes_per_s = gpu.link_bytes_per_s * share
    if gpu.linked_by_pcie:
        latency_s = max(latency_s, _PCIE_START_S + 2 * (inner - 1) * _PCIE_STEP_S)
        bytes_per_s = gpu.link_bytes_per_s * (_PCIE_SHARE if inner <= _PCIE_FEW else _PCIE_MANY_SHARE)
    if domains > 1:
        latency_s += 2 * math.log2(domains) * _NETWORK_STEP_S
        bytes_per_s = min(bytes_per_s, gpu.network_bytes_per_s * share)
    return Links(latency_s=latency_s, bytes_per_s=bytes_per_s)


@dataclass(frozen=True, kw_only=True)
class Hops:
    """All hops of one batch through a pipeline."""

    fixed_s: float
    token_s: float
    """More for each token of the batch."""
    network_fixed_s: float = 0.0
    """Of fixed_s, what hops between nodes take."""
    network_token_s: float = 0.0
    """Of token_s, what goes over the network."""


def hops_of(gpu: Gpu, layout: Layout, vector_bytes: float, *, latency_s: float, share: float) -> Hops:
    """Hops between the stages of a replica whose ranks fill one domain after the other; vector_bytes: of one token."""
    if layout.pipeline == 1:
        return Hops(fixed_s=0.0, token_s=0.0)
    stage = links_between(gpu, layout.tensor, latency_s=latency_s, share=share)
    pair = links_between(gpu, 2, latency_s=latency_s, share=share)
    hops = layout.pipeline - 1
    over_network = math.ceil(layout.tensor * layout.pipeline / gpu.link_domain) - 1
    moved = _HOP_VECTORS * vector_bytes
    slice_ = moved / layout.tensor
    network_token_s = over_network * slice_ / (gpu.network_bytes_per_s * share)
    token_s = (hops - over_network) * slice_ / pair.bytes_per_s + network_token_s
    fixed_s = hops * _HOP_S
    if layout.tensor > 1:
        # Two all-gathers take what one all-reduce takes.
        fixed_s += hops * stage.latency_s
        token_s += hops * moved * (1 - 1 / layout.tensor) / stage.bytes_per_s
    network_fixed_s = over_network * _HOP_S
    return Hops(fixed_s=fixed_s, token_s=token_s, network_fixed_s=network_fixed_s, network_token_s=network_token_s)
