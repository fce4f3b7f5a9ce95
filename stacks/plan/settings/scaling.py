"""Settings of the number of replicas: what may be drained, and when an autoscaler asks for one more."""

from __future__ import annotations

import math

from components.specs.model_server import LONGEST_WINDOW_S
from stacks.plan.settings.definition import Basis, Bounds, Definition, Derived
from stacks.proof.demand import LatencyTarget, Slo
from stacks.proof.proof import Proof
from stacks.proof.search import with_replicas

# Of what a replica carries within its targets: the rest is for requests that come while another one starts.
_HEADROOM = 0.8
_KV_SHARE = 0.9
# Some of OpenAI's clients take no longer Retry-After, and then ask again within 10 s; later ones take two minutes.
_LONGEST_RETRY_S = 60


def needed_replicas(proof: Proof) -> int:
    """Replicas that carry the declared load within its targets; all of them where no load is declared."""
    case = proof.case
    if not case.order.load or not proof.holds:
        return case.replicas
    return min(case.replicas, with_replicas(case.again(replicas=1)).replicas)


def _requests(basis: Basis) -> Derived | None:
    """By Little's law as many requests are under way as follow from the rate, so their number follows the load."""
    if basis.serving.least is None:
        return None
    case, most = basis.case, basis.case.slots * basis.case.layout.data
    carried = basis.proof.capacity_requests_per_s
    busy = case.again(requests_per_s=carried).steady.running * case.layout.data if carried else float(most)
    inputs: dict[str, float | int | str] = {"under_way": round(min(busy, most), 1), "headroom": _HEADROOM}
    return Derived(value=max(1, math.floor(_HEADROOM * min(busy, most))), inputs=inputs)


def _kv_share(basis: Basis) -> Derived | None:
    if basis.serving.least is None:
        return None
    threshold = basis.number("picker_kv_threshold")
    return Derived(value=round(_KV_SHARE * threshold, 3), inputs={"picker_kv_threshold": threshold})


def first_token_target(slo: Slo) -> LatencyTarget | None:
    """The target of the first token that a replica more is asked for: at p95, or the one nearest to it."""
    return min(slo.of_metrics("ttft"), key=lambda target: abs(target.percent - 95), default=None)


def _ttft(basis: Basis) -> Derived | None:
    target = first_token_target(basis.case.order.slo)
    if basis.serving.least is None or target is None:
        return None
    return Derived(value=target.ms / 1000, inputs={target.key: target.ms})


def _window(basis: Basis) -> Derived | None:
    if basis.serving.least is None:
        return None
    cold = math.ceil(basis.proof.cold_start["cold_start"].value)
    return Derived(value=min(cold, LONGEST_WINDOW_S), inputs={"cold_start_s": cold})


def _cooldown(basis: Basis) -> Derived | None:
    if basis.serving.least != 0:
        return None
    budget, window = int(basis.number("start_budget_s")), int(basis.number("autoscale_window_s"))
    return Derived(value=budget + window, inputs={"start_budget_s": budget, "autoscale_window_s": window})


def _retry_after(basis: Basis) -> Derived | None:
    if basis.serving.least != 0:
        return None
    cold = first_answer_s(basis.proof)
    return Derived(value=min(cold, _LONGEST_RETRY_S), inputs={"cold_start_s": cold})


def first_answer_s(proof: Proof) -> int:
    """Whole seconds from the start of a model's first replica to its first answer."""
    return math.ceil(proof.cold_start["cold_start"].value)


def _spare(basis: Basis) -> Derived:
    needed = needed_replicas(basis.proof)
    inputs: dict[str, float | int | str] = {"replicas": basis.case.replicas, "needed": needed}
    spare = basis.case.replicas - needed
    if basis.serving.least is not None:
        # While there are so few.
        spare, inputs["least"] = min(spare, basis.serving.least - 1), basis.serving.least
    return Derived(value=max(1, spare), inputs=inputs)


def _spare_bounds(basis: Basis) -> Bounds:
    needed, replicas = needed_replicas(basis.proof), basis.case.replicas
    return Bounds(
        low=1,
        high=basis.number("disruption_max_unavailable"),
        below="no node could ever be drained",
        above=f"a drain would leave fewer replicas than the {needed} of {replicas} that the load needs",
        instead_above="raise server.replicas",
    )


_SCALER = "the model's ScaledObject"

DEFINITIONS = (
    Definition(
        key="autoscale_requests",
        unit="requests per replica",
        formula=f"{_HEADROOM} x requests under way in a replica at the largest load within the targets; without a "
        "load, those that it runs at once",
        derive=_requests,
        used=f"{_SCALER}: one more replica from so many on, running and waiting",
    ),
    Definition(
        key="autoscale_kv_share",
        unit="share",
        formula=f"{_KV_SHARE} x the picker's threshold",
        derive=_kv_share,
        used=f"{_SCALER}: one more replica from so much cache in use on",
    ),
    Definition(
        key="autoscale_ttft_s",
        unit="s",
        formula="the declared target at p95, or at the percentile nearest to it",
        derive=_ttft,
        used=f"{_SCALER}: one more replica while first tokens come later",
    ),
    Definition(
        key="autoscale_window_s",
        unit="s",
        formula="cold start, an hour at most: nothing is taken away that could not be back in time",
        derive=_window,
        used=f"{_SCALER}: a replica goes once none of these was needed for so long",
    ),
    Definition(
        key="autoscale_cooldown_s",
        unit="s",
        formula="start budget + autoscale_window_s: what was started for a client serves long enough for it to return",
        derive=_cooldown,
        used=f"{_SCALER}: the last replica goes once no request has come for so long",
    ),
    Definition(
        key="starting_retry_after_s",
        unit="s",
        formula=f"cold start, {_LONGEST_RETRY_S} at most: some of OpenAI's clients take no longer one",
        derive=_retry_after,
        used="the gateway: Retry-After of its 503 model_starting while no replica serves",
    ),
    Definition(
        key="disruption_max_unavailable",
        unit="replicas",
        formula="replicas - those that the load needs, and with scaling no more than its least - 1; at least 1 so "
        "that a node can be drained",
        derive=_spare,
        used="maxUnavailable of the replicas' PodDisruptionBudget",
        bounds=_spare_bounds,
    ),
)
