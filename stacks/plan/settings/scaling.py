"""Settings of the number of replicas: what the load needs, what may be drained, when one more is due."""

from __future__ import annotations

import math

from stacks.plan.settings.definition import Basis, Bounds, Definition, Derived
from stacks.proof.proof import Proof
from stacks.proof.search import with_replicas

_NO_AUTOSCALER = (
    "the pinned versions hold no autoscaler that reads a model's queue or cache (KEDA, or an adapter of custom metrics)"
)


def needed_replicas(proof: Proof) -> int:
    """Replicas that carry the declared load within its targets; all of them where no load is declared."""
    case = proof.case
    if not case.order.load or not proof.holds:
        return case.replicas
    return min(case.replicas, with_replicas(case.again(replicas=1)).replicas)


def _needed(basis: Basis) -> Derived:
    return Derived(value=needed_replicas(basis.proof))


def _queue_tokens(basis: Basis) -> Derived:
    tokens = basis.number("max_num_queued_tokens")
    return Derived(value=math.ceil(tokens / 2), inputs={"max_num_queued_tokens": tokens})


def _kv_share(basis: Basis) -> Derived:
    threshold = basis.number("picker_kv_threshold")
    return Derived(value=round(threshold - 0.1, 3), inputs={"picker_kv_threshold": threshold})


def _window(basis: Basis) -> Derived:
    cold = math.ceil(basis.proof.cold_start["cold_start"].value)
    return Derived(value=cold, inputs={"cold_start_s": cold})


def _spare(basis: Basis) -> Derived:
    replicas, needed = basis.case.replicas, int(basis.number("autoscale_min_replicas"))
    return Derived(value=max(1, replicas - needed), inputs={"replicas": replicas, "needed": needed})


def _spare_bounds(basis: Basis) -> Bounds:
    needed, replicas = int(basis.number("autoscale_min_replicas")), basis.case.replicas
    return Bounds(
        low=1,
        high=basis.number("disruption_max_unavailable"),
        below="no node could ever be drained",
        above=f"a drain would leave fewer replicas than the {needed} of {replicas} that the load needs",
        instead_above="raise server.replicas",
    )


DEFINITIONS = (
    Definition(
        key="autoscale_min_replicas",
        unit="replicas",
        formula="fewest that carry the declared load within its targets",
        derive=_needed,
        unused=_NO_AUTOSCALER,
    ),
    Definition(
        key="autoscale_queue_tokens",
        unit="tokens per replica",
        formula="half of what may wait: a new replica is asked for before the bound is reached",
        derive=_queue_tokens,
        unused=_NO_AUTOSCALER,
    ),
    Definition(
        key="autoscale_kv_share",
        unit="share",
        formula="a tenth below the picker's threshold",
        derive=_kv_share,
        unused=_NO_AUTOSCALER,
    ),
    Definition(
        key="autoscale_window_s",
        unit="s",
        formula="cold start: nothing is taken away that could not be back in time",
        derive=_window,
        unused=_NO_AUTOSCALER,
    ),
    Definition(
        key="disruption_max_unavailable",
        unit="replicas",
        formula="replicas - those that the load needs, at least 1 so that a node can be drained",
        derive=_spare,
        used="maxUnavailable of the replicas' PodDisruptionBudget",
        bounds=_spare_bounds,
    ),
)
