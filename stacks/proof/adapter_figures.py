"""Figures of a case's adapters: what they take, and what those that take turns cost."""

from __future__ import annotations

from stacks.proof.adapter_turns import load_s, turns
from stacks.proof.adapters import Adapters, adapter_bytes, host_bytes
from stacks.proof.case import Case
from stacks.proof.figures import Fidelity, Figure
from stacks.proof.offload import PCIE_SHARE


def adapted(case: Case) -> dict[str, Figure]:
    """Empty without adapters."""
    adapters, model, load = case.order.adapters, case.order.model, case.order.load
    if adapters is None:
        return {}
    size, hosted = adapter_bytes(model, case.layout, adapters), host_bytes(model, case.layout, adapters)
    product = "(inputs + outputs of each projection{}) x 2 B"
    figures = {
        "adapters_per_gpu": _figure(
            size / 1e9, "GB", f"places x largest rank x {product.format(' on a rank')}", "published"
        ),
        "adapters_hosted": _figure(hosted / 1e9, "GB", f"GPUs x ranks of all x {product.format('')}", "published"),
    }
    taken = turns(adapters)
    if taken is None:
        return figures
    wait_s = copy_s(case, adapters)
    at_once = case.replica.adapted_at_once * case.layout.data
    figures |= {
        "adapter_misses": _figure(100 * taken.missed, "%", "requests whose adapter has lost its place"),
        "adapter_load": _figure(1e3 * wait_s, "ms", "bytes of one / half of PCIe's bandwidth + 10 us a matrix"),
        "adapted_at_once": _figure(at_once, "requests", "so many have as many adapters as there are places"),
    }
    if load is not None:
        rate = load.requests_per_s / case.schedulers
        stalled = 100 * rate * taken.missed * wait_s
        figures |= {
            "adapter_kept": _figure(taken.kept / rate, "s", "requests that fill the places / their rate"),
            "adapter_stalls": _figure(stalled, "%", "loads a second x the time of one"),
        }
    return figures


def copy_s(case: Case, adapters: Adapters) -> float:
    """Seconds for which a step waits until an adapter has its place."""
    return load_s(case.order.model, case.layout, adapters, case.order.hardware.pcie_bytes_per_s * PCIE_SHARE)


def _figure(value: float, unit: str, source: str, fidelity: Fidelity = "estimated") -> Figure:
    return Figure(value=value, unit=unit, source=source, fidelity=fidelity)
