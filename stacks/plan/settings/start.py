"""Settings of a replica's start: how long it may take before it is restarted."""

from __future__ import annotations

import math

from stacks.plan.settings.definition import Basis, Bounds, Definition, Derived, Place
from stacks.proof.adapters import all_loaded_s
from stacks.proof.offload import cleared_s

# Kubernetes asks a starting replica this often.
PROBE_PERIOD_S = 5
# Compilation and CUDA graphs on a slow day.
START_SLACK_S = 300
# A download and a disk may be this much slower than predicted: that is no crash.
START_MARGIN = 2
# Every budget lets so many replicas start at once, so that a small site can add one without a restart.
_FEWEST_READERS = 4
# Kubernetes counts a Deployment's deadline in int32 seconds: this, a stream and the end of a pod are within it.
_LONGEST_START_S = 10**9


def _figure(basis: Basis, key: str) -> float:
    """A figure of the cold start, in seconds."""
    return basis.proof.cold_start[key].value


def readers(replicas: int) -> int:
    """Replicas that a budget lets start at once: 4, 8, 16 and so on, at least as many as there are.

    A budget is part of a Pod: by the exact count, one replica more would restart all others.
    """
    return max(_FEWEST_READERS, 1 << (replicas - 1).bit_length())


def _budget(basis: Basis) -> Derived:
    together = readers(basis.case.replicas)
    order = basis.case.order
    read, cleared = order.read_s(together), cleared_s(order.kv_offload_gib)
    loaded = all_loaded_s(order.model, order.adapters)
    return Derived(
        value=math.ceil(START_MARGIN * (read + cleared + loaded)) + START_SLACK_S,
        inputs={
            "readers": together,
            "read_weights_s": round(read),
            **({"clear_memory_s": round(cleared)} if cleared else {}),
            **({"load_adapters_s": round(loaded)} if loaded else {}),
        },
    )


def _budget_bounds(basis: Basis) -> Bounds:
    start, replicas = math.ceil(_figure(basis, "cold_start_together")), basis.case.replicas
    needs, killed = (f"{replicas:,} replicas at once need", "them") if replicas > 1 else ("a replica needs", "it")
    return Bounds(
        low=start,
        high=_LONGEST_START_S,
        above="Kubernetes takes no such time, and a replica that hangs would never be restarted",
        below=f"{needs} {start:,} s to start, so that Kubernetes would kill {killed} before that, again and again",
        instead_below="raise storage.read_bytes_per_s and storage.shared_read_bytes_per_s if the site is faster "
        "(storage.weights.node_read_bytes_per_s with place: nodes)",
    )


def _download_budget(basis: Basis) -> Derived:
    together = readers(basis.case.replicas) + 1
    download, read = _figure(basis, "download_weights"), basis.case.order.read_s(together)
    return Derived(
        value=math.ceil(START_MARGIN * (download + read)) + START_SLACK_S,
        inputs={"readers": together, "download_weights_s": round(download), "read_weights_s": round(read)},
    )


def _probes(basis: Basis) -> Derived:
    budget = basis.number("start_budget_s")
    return Derived(value=math.ceil(budget / PROBE_PERIOD_S), inputs={"start_budget_s": int(budget)})


DEFINITIONS = (
    Definition(
        key="start_budget_s",
        unit="s",
        formula=f"{START_MARGIN} x time in which all replicas read the weights at once (their number rounded up to "
        f"{_FEWEST_READERS}, {2 * _FEWEST_READERS}, {4 * _FEWEST_READERS}, ...; and time to clear "
        f"server.kv_offload_gib and to load adapters) + {START_SLACK_S} for compilation and CUDA graphs",
        derive=_budget,
        used="variable VLLM_ENGINE_READY_TIMEOUT_S; progressDeadlineSeconds of the Deployment",
        places=(Place(kind="variable", name="VLLM_ENGINE_READY_TIMEOUT_S"),),
        bounds=_budget_bounds,
    ),
    Definition(
        key="download_budget_s",
        unit="s",
        formula=f"{START_MARGIN} x (time to download the weights + time to read what is in the volume and not verified "
        f"yet, while all replicas start) + {START_SLACK_S}",
        derive=_download_budget,
        used="activeDeadlineSeconds of the Job that brings the weights, and how long `up` waits for the other nodes",
        places=(Place(kind="field", name="activeDeadlineSeconds"),),
    ),
    Definition(
        key="startup_probe_failures",
        unit="probes",
        formula=f"start budget / period of {PROBE_PERIOD_S} s",
        derive=_probes,
        used="failureThreshold of the startup probe",
        places=(Place(kind="field", name="startupProbe.failureThreshold"),),
    ),
)
