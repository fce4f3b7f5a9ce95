"""Settings of the queue before a replica: what it holds, and from when on the picker prefers another one."""

from __future__ import annotations

import math

from stacks.plan.settings.definition import Basis, Bounds, Definition, Derived, Place
from stacks.proof.case import Case
from stacks.proof.serving import PATH_S, REQUEST_OVERHEAD_S

# The picker keeps at least this share of a cache for growth, and never thinks more than this is free; estimated.
_KV_SHARES = (0.5, 0.95)
_PICKER = "endpoint picker's configuration, plugin utilization-detector"


def queue_requests(case: Case) -> int:
    """Requests that may wait in front of one scheduler: those that it works off before the TTFT target is gone.

    Of several TTFT targets the one of the highest percentile is the longest wait that is allowed. Without a target as
    many as run, so that a full replica has its next batch at hand.
    """
    limit = case.order.slo.longest_ttft_ms
    if limit is None or not case.order.load or case.fit_problems:
        return case.slots
    # Of a full replica, so that neither load nor replicas change an argument of running engines.
    mean, long = case.steady.busiest_prompts_s()
    left = limit / 1e3 - PATH_S - REQUEST_OVERHEAD_S - long
    return max(1, math.floor(left / mean))


def _running(case: Case) -> int:
    """Requests that a replica runs at once, over its data-parallel ranks."""
    return case.slots * case.layout.data


def _waiting(basis: Basis) -> int:
    return max(1, int(basis.number("max_num_queued_reqs")) - _running(basis.case))


def _ttft(case: Case) -> dict[str, float | int | str]:
    return {target.key: target.ms for target in case.order.slo.of_metrics("ttft")}


def _held(basis: Basis) -> Derived:
    case = basis.case
    running = _running(case)
    return Derived(value=running + queue_requests(case) * case.layout.data, inputs={"running": running} | _ttft(case))


def _held_bounds(basis: Basis) -> Bounds:
    case = basis.case
    running, target = _running(case), case.order.slo.longest_ttft_ms
    bounded = target is not None and case.order.load is not None
    return Bounds(
        low=running + case.layout.data,
        high=basis.number("max_num_queued_reqs") if bounded else math.inf,
        below=f"it would refuse requests while the replica could still start one: it runs {running:,} at once",
        above=f"the last of so many would wait longer than the TTFT target of {target or 0:,.0f} ms",
        instead_below="lower overrides.max_num_seqs",
        instead_above=f"raise slo.{case.order.slo.of_metrics('ttft')[-1].key}" if bounded else "",
    )


def _held_tokens(basis: Basis) -> Derived:
    order = basis.case.order
    prompt = order.load.prompt_tokens.mean if order.load else order.request_tokens
    waiting = _waiting(basis)
    inputs = {"waiting": waiting, "mean_prompt_tokens": round(prompt)}
    return Derived(value=math.ceil(waiting * prompt), inputs=inputs | _ttft(basis.case))


def _queue_threshold(basis: Basis) -> Derived:
    waiting, ranks = _waiting(basis), basis.case.layout.data
    return Derived(value=max(1, waiting // ranks), inputs={"waiting": waiting, "ranks": ranks} | _ttft(basis.case))


def _queue_bounds(basis: Basis) -> Bounds:
    return Bounds(
        low=1,
        high=basis.number("picker_queue_threshold"),
        below="the picker takes no threshold below 1",
        above="the picker would go on sending to a replica that refuses: no more than that may wait there",
        instead_above="raise overrides.max_num_queued_reqs",
    )


def _shedding_threshold(basis: Basis) -> Derived:
    threshold = int(basis.number("picker_queue_threshold"))
    return Derived(value=max(1, threshold // 2), inputs={"picker_queue_threshold": threshold})


def _kv_threshold(basis: Basis) -> Derived:
    case = basis.case
    order, (low, high) = case.order, _KV_SHARES
    longest = order.load.longest_tokens if order.load else order.request_tokens
    share = 1 - case.cache.request_bytes(longest) / case.room if case.keeps_cache and case.room > 0 else 1.0
    inputs = {"long_request_tokens": round(longest)}
    return Derived(value=round(min(high, max(low, share)), 3), inputs=inputs | _ttft(case))


def _kv_bounds(basis: Basis) -> Bounds:
    return Bounds(
        low=0.01,
        high=basis.number("picker_kv_threshold"),
        below="nearly every replica would count as full",
        above="a replica that is nearly full would get one more long request, and throw others out of its cache for it",
    )


DEFINITIONS = (
    Definition(
        key="max_num_queued_reqs",
        unit="requests",
        formula="running + waiting requests of a replica, as vLLM counts them; waiting = (TTFT target - path - long "
        "prompt) / mean prompt time, at least 1; without a target as many as run",
        derive=_held,
        used="the model's BackendTrafficPolicy and the picker's thresholds; twice of it is the argument of the engine, "
        "--max-num-queued-reqs, since a burst reaches one replica before the picker sees its queue",
        bounds=_held_bounds,
    ),
    Definition(
        key="max_num_queued_tokens",
        unit="tokens",
        formula="waiting requests x mean prompt",
        derive=_held_tokens,
        unused="vLLM counts a whole prompt, cached parts too, until its first token: one long prompt would make it "
        "refuse all other requests until then",
    ),
    Definition(
        key="picker_queue_threshold",
        unit="requests",
        formula="waiting requests of a replica / its data-parallel ranks: the picker sees one rank's queue",
        derive=_queue_threshold,
        used=f"{_PICKER}: queueDepthThreshold",
        places=(Place(kind="configuration", name="queueDepthThreshold"),),
        bounds=_queue_bounds,
    ),
    Definition(
        key="picker_shedding_threshold",
        unit="requests",
        formula="picker_queue_threshold / 2, at least 1: what may be shed makes room before others wait",
        derive=_shedding_threshold,
        used="endpoint picker's configuration, plugin shedding: queueDepthThreshold",
        places=(Place(kind="configuration", name="queueDepthThreshold"),),
    ),
    Definition(
        key="picker_kv_threshold",
        unit="share",
        formula="1 - cache of one long request / cache, between 0.5 and 0.95",
        derive=_kv_threshold,
        used=f"{_PICKER}: kvCacheUtilThreshold, and in its plugin shedding",
        places=(Place(kind="configuration", name="kvCacheUtilThreshold"),),
        bounds=_kv_bounds,
    ),
)
