"""Settings of what a site chooses beside a model: drafts, adapters, and weights that are quantised."""

from __future__ import annotations

from stacks.plan.settings.definition import Basis, Definition, Derived, Place


def _drafted(basis: Basis) -> Derived | None:
    speculation = basis.case.order.speculation
    if speculation is None:
        return None
    return Derived(value=speculation.tokens, inputs={"method": speculation.method}, origin="site")


def _given(basis: Basis) -> Derived | None:
    speculation = basis.case.order.speculation
    if speculation is None:
        return None
    inputs: dict[str, float | int | str] = {
        "num_speculative_tokens": speculation.tokens,
        "acceptance": speculation.acceptance,
    }
    return Derived(value=round(speculation.per_step, 3), inputs=inputs)


def _quantised(basis: Basis) -> Derived | None:
    order = basis.case.order
    if order.stored is None:
        return None
    inputs: dict[str, float | int | str] = {
        "file_bytes": round(order.file_bytes),
        "weight_bytes_per_gpu": round(basis.case.weights),
    }
    return Derived(value=order.model.quantisation.format, inputs=inputs, origin="site")


def _offloaded(basis: Basis) -> Derived | None:
    order, data = basis.case.order, basis.case.layout.data
    if not order.kv_offload_gib:
        return None
    return Derived(value=order.kv_offload_gib / data, inputs={"kv_offload_gib": order.kv_offload_gib, "data": data})


def _slots(basis: Basis) -> Derived | None:
    adapters = basis.case.order.adapters
    if adapters is None:
        return None
    if adapters.places is None:
        return Derived(value=adapters.slots, inputs={"adapters": adapters.slots})
    inputs: dict[str, float | int | str] = {"adapters": len(adapters.loaded), "resident_adapters": adapters.places}
    return Derived(value=adapters.slots, inputs=inputs, origin="site")


def _hosted(basis: Basis) -> Derived | None:
    adapters = basis.case.order.adapters
    if adapters is None or adapters.slots == len(adapters.loaded):
        return None
    return Derived(value=len(adapters.loaded), inputs={"adapters": len(adapters.loaded)})


def _largest_rank(basis: Basis) -> Derived | None:
    adapters = basis.case.order.adapters
    if adapters is None:
        return None
    return Derived(value=adapters.rank, inputs={"largest_rank": max(adapter.rank for adapter in adapters.loaded)})


DEFINITIONS = (
    Definition(
        key="num_speculative_tokens",
        unit="tokens",
        formula="server.speculative.tokens, checked by the proof",
        derive=_drafted,
        used="argument of the engine, --speculative-config",
        places=(Place(kind="flag", name="speculative-config"),),
    ),
    Definition(
        key="tokens_per_step",
        unit="tokens",
        formula="(1 - acceptance^(k + 1)) / (1 - acceptance), k drafted tokens; Leviathan et al. 2023",
        derive=_given,
        unused="the engine finds by itself how many of the drafted tokens it accepts; figures follow from it",
    ),
    Definition(
        key="quantized_weights",
        unit="",
        formula="server.quantization: linear layers and experts; not embeddings, output embeddings and routers",
        derive=_quantised,
        used="argument of the engine, --quantization",
        places=(Place(kind="flag", name="quantization"),),
    ),
    Definition(
        key="kv_offloading_size",
        unit="GiB",
        formula="server.kv_offload_gib / data-parallel ranks, each of which has memory of its own",
        derive=_offloaded,
        used="argument of the engine, --kv-offloading-size, and as much of /dev/shm",
        places=(Place(kind="flag", name="kv-offloading-size"),),
    ),
    Definition(
        key="max_loras",
        unit="adapters",
        formula="server.resident_adapters; without it one place on the GPU for each adapter, so that no request waits "
        "for another's",
        derive=_slots,
        used="argument of the engine, --max-loras",
        places=(Place(kind="flag", name="max-loras"),),
    ),
    Definition(
        key="max_cpu_loras",
        unit="adapters",
        formula="all that take turns on the GPU, in the memory of its node",
        derive=_hosted,
        used="argument of the engine, --max-cpu-loras",
        places=(Place(kind="flag", name="max-cpu-loras"),),
    ),
    Definition(
        key="max_lora_rank",
        unit="",
        formula="largest rank of the adapters, rounded up to one that vLLM takes",
        derive=_largest_rank,
        used="argument of the engine, --max-lora-rank",
        places=(Place(kind="flag", name="max-lora-rank"),),
    ),
)
