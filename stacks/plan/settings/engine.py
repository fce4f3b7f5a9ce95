"""Settings of the engine itself: layout, cache, batch. A flag of the same name renders each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from floor import gpu_nodes
from stacks.plan.settings.definition import Basis, Bounds, Definition, Derived, Origin, Place
from stacks.proof.cache import BLOCK_TOKENS
from stacks.proof.case import Case
from stacks.proof.demand import GAPS
from stacks.proof.order import Given

_ARGUMENT = "argument of the engine"
_GPUS = (
    Place(kind="field", name=f'resources.limits["{gpu_nodes.RESOURCE}"]'),
    Place(kind="field", name=f'resources.requests["{gpu_nodes.RESOURCE}"]'),
)
_FEWEST = "fewest GPUs that hold weights and the longest request, and carry the load within its targets"


def _cut_by(case: Case) -> Origin:
    return "site" if case.order.layout else "derived"


def _size(read: Callable[[Case], int]) -> Callable[[Basis], Derived]:
    """One size of the layout."""

    def derive(basis: Basis) -> Derived:
        case = basis.case
        inputs = {"weight_bytes_per_gpu": round(case.weights), "usable_bytes_per_gpu": round(case.usable)}
        formula = "server.layout, checked by the proof" if case.order.layout else ""
        return Derived(value=read(case), inputs=inputs, origin=_cut_by(case), formula=formula)

    return derive


def _expert_parallel(basis: Basis) -> Derived:
    case = basis.case
    return Derived(value=case.layout.expert_parallel, inputs={"layout": str(case.layout)}, origin=_cut_by(case))


def _kv_cache_dtype(basis: Basis) -> Derived:
    case = basis.case
    # With fp8, vLLM 0.32 ends at an encoder's first request (v1/attention/backends/flash_attn.py).
    fp8 = case.order.kv_dtype == "fp8" and case.keeps_cache
    return Derived(value="fp8" if fp8 else "auto", inputs={"gpu": case.order.gpu})


def _counted(value: int, ordered: int | None, inputs: Mapping[str, float | int | str]) -> Derived:
    """A count of the case, which the order may have set."""
    if isinstance(ordered, Given):
        return Derived(value=value, inputs=inputs, origin="override", reason=ordered.reason)
    return Derived(value=value, inputs=inputs, origin="derived" if ordered is None else "site")


def _max_model_len(basis: Basis) -> Derived:
    case = basis.case
    inputs = {"model_limit": case.order.model.max_context_tokens, "cache_holds": case.longest}
    return _counted(case.context, case.order.context_tokens, inputs)


def _longest_request(basis: Basis) -> Bounds:
    load = basis.case.order.load
    return Bounds(
        low=math.ceil(load.longest_tokens) if load else 1,
        high=math.inf,
        below="the engine would refuse the declared load: p95 of its prompts and p95 of its answers need more",
        instead_below="lower load.prompt_tokens.p95",
    )


def _memory(case: Case) -> dict[str, float | int | str]:
    return {
        "cache_bytes_per_gpu": round(max(0.0, case.room)),
        "request_bytes": round(case.cache.request_bytes(case.order.request_tokens)),
        "request_tokens": round(case.order.request_tokens),
    }


def _gap_targets(case: Case) -> dict[str, float | int | str]:
    return {target.key: target.ms for target in case.order.slo.of_metrics(*GAPS)}


def _targets(case: Case) -> dict[str, float | int | str]:
    return {target.key: target.ms for target in case.order.slo.targets}


def _max_num_seqs(basis: Basis) -> Derived:
    case = basis.case
    return _counted(case.slots, case.order.max_num_seqs, _memory(case) | _gap_targets(case))


def _max_num_batched_tokens(basis: Basis) -> Derived:
    case = basis.case
    return _counted(case.batched_tokens, case.order.max_num_batched_tokens, _targets(case))


def _kv_blocks(basis: Basis) -> Derived:
    case = basis.case
    return Derived(value=math.ceil(max(case.cache_tokens, case.context) / BLOCK_TOKENS), inputs=_memory(case))


DEFINITIONS = (
    Definition(
        key="tensor_parallel_size",
        unit="GPUs",
        formula=_FEWEST,
        derive=_size(lambda case: case.layout.tensor),
        used=f"{_ARGUMENT}, --tensor-parallel-size; GPUs of its container",
        places=_GPUS,
    ),
    Definition(
        key="pipeline_parallel_size",
        unit="GPUs",
        formula=_FEWEST,
        derive=_size(lambda case: case.layout.pipeline),
        used=f"{_ARGUMENT}, --pipeline-parallel-size; GPUs of its container",
    ),
    Definition(
        key="data_parallel_size",
        unit="GPUs",
        formula=_FEWEST,
        derive=_size(lambda case: case.layout.data),
        used=f"{_ARGUMENT}, --data-parallel-size; GPUs of its container",
    ),
    Definition(
        key="enable_expert_parallel",
        unit="",
        formula="whole experts where ranks are data-parallel, or a slice would not be whole blocks",
        derive=_expert_parallel,
        used=f"{_ARGUMENT}, --enable-expert-parallel",
    ),
    Definition(
        key="kv_cache_dtype",
        unit="",
        formula="fp8 where the GPU has FP8 units: half the bytes per token; auto for an encoder, which has no cache",
        derive=_kv_cache_dtype,
        fidelity="published",
        used=f"{_ARGUMENT}, --kv-cache-dtype",
    ),
    Definition(
        key="max_model_len",
        unit="tokens",
        formula="min(model's limit, longest request that the cache holds, what the site asks for)",
        derive=_max_model_len,
        used=f"{_ARGUMENT}, --max-model-len; endpoint picker's prefix index",
        places=(Place(kind="configuration", name="maxPrefixTokensToMatch"),),
        bounds=_longest_request,
    ),
    Definition(
        key="max_num_seqs",
        unit="requests",
        formula="min(cache / bytes of a mean request, largest batch whose decode step is within every ITL and "
        "TPOT target, 1024)",
        derive=_max_num_seqs,
        used=f"{_ARGUMENT}, --max-num-seqs",
    ),
    Definition(
        key="max_num_batched_tokens",
        unit="tokens",
        formula="of 512 to 8192 the largest with which the declared load keeps every target; 8192 without targets "
        "of ITL or TPOT; of an encoder no less than max_model_len",
        derive=_max_num_batched_tokens,
        used=f"{_ARGUMENT}, --max-num-batched-tokens",
    ),
    Definition(
        key="kv_blocks",
        unit="blocks",
        formula="max(cache / bytes of a mean request x its tokens, max_model_len) / 16, over data-parallel ranks",
        derive=_kv_blocks,
        used="endpoint picker's prefix index; --kv-cache-size of the simulator",
        places=(Place(kind="flag", name="kv-cache-size"), Place(kind="configuration", name="lruCapacityPerServer")),
    ),
)
