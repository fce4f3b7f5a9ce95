"""Settings of what a replica requests of its node beside GPUs: without them, it is evicted and starved first."""

from __future__ import annotations

import math
from collections.abc import Callable

from stacks.plan.settings.definition import Basis, Bounds, Definition, Derived, Place
from stacks.proof.adapters import host_bytes
from stacks.proof.case import Case

# No public figure of a process with a GPU was found that does not also count weights or a leak.
_GIB_PER_PROCESS = 4
# vLLM's --mm-processor-cache-gb. With one API server a single process holds the data: the engine core of one rank, or
# the API server of several (vllm/multimodal/cache/factories.py in 0.32; the docstring of its setting counts more).
_GIB_OF_PICTURES = 4
# Twice what servers with 8 GPUs are sold with: two sockets of 192 cores, 4 TiB.
_MOST_CORES = 1536
_MOST_GIB = 8192


def processes(case: Case) -> int:
    """Processes of one replica of vLLM 0.32.

    Its API server, which is one by our flags; an engine core per data-parallel rank; a worker per GPU, which for one
    GPU alone runs in the engine core's process; with several ranks a coordinator (design/arch_overview.md of its
    documentation, vllm/config/parallel.py).
    """
    layout = case.layout
    workers = layout.gpus if layout.gpus > 1 else 0
    return 1 + layout.data + workers + (1 if layout.data > 1 else 0)


def _cores(basis: Basis) -> Derived:
    count = processes(basis.case)
    return Derived(value=count, inputs={"processes": count})


def _memory(basis: Basis) -> Derived:
    case = basis.case
    count = processes(case)
    pictures = _GIB_OF_PICTURES if case.order.model.vision_parameters else 0
    inputs: dict[str, float | int | str] = {"processes": count, "picture_cache_gib": pictures}
    if offloaded := case.order.kv_offload_gib:
        inputs["kv_offload_gib"] = offloaded
    hosted = math.ceil(host_bytes(case.order.model, case.layout, case.order.adapters) / 2**30)
    if hosted:
        inputs["adapters_gib"] = hosted
    return Derived(value=_GIB_PER_PROCESS * count + pictures + offloaded + hosted, inputs=inputs)


def _on_a_node(most: int) -> Callable[[Basis], Bounds]:
    """A site's own figure is bounded by what any node has: it catches a value in another unit."""
    return lambda _: Bounds(low=1, high=most, above="no GPU node has as much, so that its replicas would be Pending")


DEFINITIONS = (
    Definition(
        key="cpu_request_cores",
        unit="cores",
        formula="one per process of the engine: its API server, an engine core per data-parallel rank, a worker per "
        "GPU where there are several, a coordinator where there are several ranks",
        derive=_cores,
        used="CPU that vLLM's container requests, in hardware threads; no limit. A simulator requests none",
        places=(Place(kind="field", name="resources.requests.cpu"),),
        bounds=_on_a_node(_MOST_CORES),
    ),
    Definition(
        key="memory_request_gib",
        unit="GiB",
        formula=f"{_GIB_PER_PROCESS} per process of the engine, and {_GIB_OF_PICTURES} where the model sees: "
        "its cache of processed pictures; server.kv_offload_gib; and all adapters once for each GPU",
        derive=_memory,
        used="memory that vLLM's container requests; no limit. A simulator requests none",
        places=(Place(kind="field", name="resources.requests.memory"),),
        bounds=_on_a_node(_MOST_GIB),
    ),
)
