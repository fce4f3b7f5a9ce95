"""Recording rules: what the site declares, as series to compare with, and figures that several expressions need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.monitoring import cost_queries, group_queries, queries
from components.specs.promises import HISTOGRAMS, LatencyPromise, ModelPromise, SitePromise

WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
"""Over which the share of failed requests is recorded: those of the burn rates."""
_LATENCY_WINDOW = "15m"


def declared(promise: SitePromise) -> list[dict[str, Any]]:
    """A constant series for each figure that the site declares."""
    rules = [_record(queries.AVAILABILITY, promise.availability_percent / 100, {})]
    rules += [rule for model in promise.models for rule in _of_model(model)]
    rules += [_record(queries.OFFERED_GPUS, gpus, {"node": node}) for node, gpus in promise.node_gpus.items()]
    rules += [
        _record(queries.TIER, 1, {"tenant": tenant, "tier": tier}) for tenant, tier in sorted(promise.tiers.items())
    ]
    return rules


def _of_model(model: ModelPromise) -> Iterator[dict[str, Any]]:
    own = {"model": model.model}
    for target in model.targets:
        percentile = {"metric": target.metric, "percentile": f"{target.percentile}"}
        yield _record(queries.TARGET, target.seconds, own | percentile)
    if model.itl_mean_s is not None:
        yield _record(queries.PROMISED_ITL, model.itl_mean_s, own)
    if model.requests_per_s is not None:
        yield _record(queries.DECLARED_REQUESTS, model.requests_per_s, own)
    yield _record(queries.DECLARED_REPLICAS, model.replicas, own)
    yield _record(queries.DECLARED_GPUS, model.gpus, own)
    if model.carried_tokens_per_s:
        yield _record(cost_queries.PROVEN_TOKENS, model.carried_tokens_per_s, own)
    yield _record(queries.QUEUE_LIMIT, model.shedding_queue, own)


def credential_ends(ends: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The group with a constant series for each credential of the cluster.

    ends: what each is -> its name -> the expression of its end, by `timestamp`; it may be known later.
    """
    rules = [
        _rule(queries.CREDENTIAL_END, expression, {"kind": kind, "credential": name})
        for kind, of_kind in ends.items()
        for name, expression in of_kind.items()
    ]
    return [{"name": "credential-ends", "rules": rules}]


def timestamp(unix_s: int) -> str:
    """A point in time, to the second."""
    return f"vector({unix_s:d})"


def measured(promise: SitePromise) -> list[dict[str, Any]]:
    """Figures that several alerts and panels need."""
    rules = [_rule(queries.error_ratio(window), queries.status_share("5", window=window), {}) for window in WINDOWS]
    rules += [
        _within(model.model, target, target.bound_s)
        for model in promise.models
        for target in model.targets
        if target.bound_s is not None
    ]
    return [*rules, _rule(queries.gpus_by_model(), group_queries.assigned_gpus(promise.slices, promise.groups), {})]


def _within(model: str, target: LatencyPromise, bound_s: float) -> dict[str, Any]:
    """How many of a metric's values are within its target for sure, or may be: a bucket has no finer answer."""
    engines = f'{queries.ENGINES}, model="{model}"'
    share = queries.share_up_to(bound_s, HISTOGRAMS[target.metric], engines, window=_LATENCY_WINDOW)
    # Of fewer, one request alone would be all that is beyond the percentile.
    fewest = round(1 / (1 - target.percentile / 100))
    # A request has one first token and one mean gap.
    counted = "vllm:inter_token_latency_seconds" if target.metric == "itl" else "vllm:time_to_first_token_seconds"
    values = queries.growth(f"{counted}_count", engines, by=("model",), window=_LATENCY_WINDOW)
    labels = {"metric": target.metric, "percentile": f"{target.percentile}", "bound_s": f"{bound_s:g}"}
    return _rule(queries.WITHIN_TARGET, f"{share} and on (model) {values} >= {fewest}", labels)


def _record(name: str, value: float, labels: Mapping[str, str]) -> dict[str, Any]:
    return _rule(name, f"vector({value:.6g})", labels)


def _rule(name: str, expression: Any, labels: Mapping[str, str]) -> dict[str, Any]:
    return {"record": name, "expr": expression, **({"labels": dict(labels)} if labels else {})}
