"""Whether the knobs that a site overrides are still consistent with its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from stacks.plan.knobs import Serving, knobs, needed_replicas, number, token_s
from stacks.proof.figures import Explanation, shown
from stacks.proof.proof import Proof


@dataclass(frozen=True, kw_only=True)
class BrokenOverride:
    """An override that the proof refuses."""

    key: str
    """The knob's name."""
    what: str
    """What it would break."""
    got: str
    allowed: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class _Range:
    """What the proof allows, with what breaks beyond either end and what else would help there."""

    low: float
    high: float
    below: str = ""
    above: str = ""
    instead_above: str = ""
    instead_below: str = ""


def broken_overrides(proof: Proof, serving: Serving) -> list[BrokenOverride]:
    """Each knob that the site sets outside of what this proof allows, all at once. `proof` must hold.

    max_num_seqs, max_num_batched_tokens and max_model_len are part of the order, so the proof itself refuses what the
    GPUs cannot do of them.
    """
    return list(_broken(proof, serving))


def _broken(proof: Proof, serving: Serving) -> Iterator[BrokenOverride]:
    if not serving.overrides:
        return
    found = knobs(proof, serving)
    for key, allowed in _RANGES.items():
        override = serving.overrides.get(key)
        if override is None:
            continue
        if key not in found:
            model = proof.order.model
            yield BrokenOverride(
                key=key,
                what=f"{model.repository} has no such knob: its task is {model.task}",
                got=shown(override.value),
                allowed="nothing",
                fix="take it out",
            )
            continue
        # Against what is derived with the other overrides in place: they are the site's wish as well.
        others = {name: each for name, each in serving.overrides.items() if name != key}
        free = knobs(proof, replace(serving, overrides=others))
        limits = allowed(proof, serving, free)
        if limits.low <= override.value <= limits.high:
            continue
        short = override.value < limits.low
        end, instead = (
            (f"at least {shown(limits.low)}", limits.instead_below)
            if short
            else (f"at most {shown(limits.high)}", limits.instead_above)
        )
        yield BrokenOverride(
            key=key,
            what=limits.below if short else limits.above,
            got=f"{shown(override.value)} {free[key].unit}",
            allowed=_span(limits, end),
            fix=f"write {end}" + (f", or {instead}" if instead else ""),
        )


def _span(limits: _Range, end: str) -> str:
    if limits.low == limits.high:
        return shown(limits.low)
    return f"from {shown(limits.low)} to {shown(limits.high)}" if math.isfinite(limits.high) else end


_Free = Mapping[str, Explanation]

# Kubernetes counts a Deployment's deadline in int32 seconds: this, a stream and the end of a pod are within it.
_LONGEST_START_S = 10**9


def _context(proof: Proof, serving: Serving, free: _Free) -> _Range:  # noqa: ARG001 - one form for all
    load = proof.case.order.load
    return _Range(
        low=math.ceil(load.longest_tokens) if load else 1,
        high=math.inf,
        below="the engine would refuse the declared load: p95 of its prompts and p95 of its answers need more",
        instead_below="lower load.prompt_tokens.p95",
    )


def _held(proof: Proof, serving: Serving, free: _Free) -> _Range:  # noqa: ARG001 - one form for all
    case = proof.case
    running, target = case.slots * case.layout.data, case.order.slo.ttft_p95_ms
    bounded = target is not None and case.order.load is not None
    return _Range(
        low=running + case.layout.data,
        high=number(free["max_num_queued_reqs"]) if bounded else math.inf,
        below=f"it would refuse requests while the replica could still start one: it runs {running:,} at once",
        above=f"the last of so many would wait longer than the TTFT target of {target or 0:,.0f} ms",
        instead_below="lower overrides.max_num_seqs",
        instead_above="raise slo.ttft_p95_ms",
    )


def _queue(proof: Proof, serving: Serving, free: _Free) -> _Range:  # noqa: ARG001
    return _Range(
        low=1,
        high=number(free["picker_queue_threshold"]),
        below="the picker takes no threshold below 1",
        above="the picker would go on sending to a replica that refuses: no more than that may wait there",
        instead_above="raise overrides.max_num_queued_reqs",
    )


def _cache(proof: Proof, serving: Serving, free: _Free) -> _Range:  # noqa: ARG001
    return _Range(
        low=0.01,
        high=number(free["picker_kv_threshold"]),
        below="nearly every replica would count as full",
        above="a replica that is nearly full would get one more long request, and throw others out of its cache for it",
    )


def _parallel(proof: Proof, serving: Serving, free: _Free) -> _Range:  # noqa: ARG001
    case = proof.case
    running = case.replicas * case.slots * case.layout.data
    return _Range(
        low=running,
        high=number(free["gateway_parallel_requests"]),
        below=f"the gateway would refuse requests while GPUs are idle: the replicas run {running:,} at once",
        above="the gateway would pass on what the replicas refuse",
        instead_above="raise overrides.max_num_queued_reqs or server.replicas",
    )


def _answers(proof: Proof, serving: Serving, free: _Free) -> _Range:
    case, most = proof.case, number(free["gateway_max_tokens"])
    usual = math.ceil(case.order.load.answer_tokens.p95) if case.order.load else 1
    wanted = serving.overrides["gateway_max_tokens"].value
    seconds = math.ceil(wanted * token_s(case))
    fits = wanted <= case.context
    return _Range(
        low=min(usual, most),
        high=most,
        below="answers that the declared load has would be cut",
        instead_below="lower load.answer_tokens.p95" if usual > 1 else "",
        above=f"an answer of so many tokens takes {seconds:,} s, and a rollout cuts streams after "
        f"{serving.longest_stream_s:,} s"
        if fits
        else f"no request may have more than {case.context:,} tokens",
        instead_above=f"raise server.longest_stream_s to {seconds + 1}" if fits else "",
    )


def _start(proof: Proof, serving: Serving, free: _Free) -> _Range:  # noqa: ARG001
    first, download = (math.ceil(proof.cold_start[key].value) for key in ("first_start", "download_weights"))
    fetched = f", {download:,} s of it to download its weights," if download else ""
    speeds = ["storage.weights.download_bytes_per_s"] if download else []
    return _Range(
        low=first,
        high=_LONGEST_START_S,
        above="Kubernetes takes no such time, and a replica that hangs would never be restarted",
        below=f"a replica needs {first:,} s to start{fetched} and would be killed while it loads, for ever",
        instead_below=f"raise {' or '.join([*speeds, 'storage.read_bytes_per_s'])} if the site is faster",
    )


def _disruption(proof: Proof, serving: Serving, free: _Free) -> _Range:  # noqa: ARG001
    most = number(free["disruption_max_unavailable"])
    return _Range(
        low=1,
        high=most,
        below="no node could ever be drained",
        above=f"a drain would leave fewer replicas than the {needed_replicas(proof)} of {proof.case.replicas} "
        "that the load needs",
        instead_above="raise server.replicas",
    )


_RANGES: Mapping[str, Callable[[Proof, Serving, _Free], _Range]] = {
    "max_model_len": _context,
    "max_num_queued_reqs": _held,
    "picker_queue_threshold": _queue,
    "picker_kv_threshold": _cache,
    "gateway_parallel_requests": _parallel,
    "gateway_max_tokens": _answers,
    "start_budget_s": _start,
    "disruption_max_unavailable": _disruption,
}
