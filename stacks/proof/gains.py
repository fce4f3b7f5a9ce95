"""What drafts change: the same replicas with and without them, for one request, when full, and at the declared load.

Drafts make each step longer and give it more tokens. For few requests a step mostly reads weights, which it does once
for all tokens; for many it computes, and what is not accepted is computed for nothing.
"""

from __future__ import annotations

from dataclasses import replace

from stacks.proof.case import Case
from stacks.proof.figures import Figure
from stacks.proof.front_end import FRONT_END, SERVERS
from stacks.proof.saturation import Mix, saturation

_STEP = "step that verifies and drafts / tokens that it gives"


def without_drafts(case: Case) -> Case:
    """The same replicas on the same layout, which draft nothing."""
    return Case(replace(case.order, speculation=None), case.layout, case.replicas)


def full_requests_per_s(case: Case) -> float:
    """Requests per second of the declared kind that all replicas answer when there are always more.

    0 without a load.
    """
    load, order = case.order.load, case.order
    if load is None or case.fit_problems:
        return 0.0
    mix = Mix.of(load)
    if order.model.task != "generate":
        mix = replace(mix, answer=1.0)
    engine = saturation(
        case.roofline,
        mix,
        slots=min(case.slots, case.replica.adapted_at_once),
        batched_tokens=case.batched_tokens,
        stages=case.layout.pipeline,
        tokens_per_step=order.tokens_per_step,
        width=case.width,
    )
    return min(engine.requests_per_s * case.schedulers, _passed_requests_per_s(case, mix))


def _passed_requests_per_s(case: Case, mix: Mix) -> float:
    """The most that the API servers of all replicas pass, their streams in as few pieces as full steps allow."""
    steps = mix.answer / case.order.tokens_per_step
    least_s = FRONT_END.least_s(mix.prompt + mix.cached, steps, case.slots)
    return case.replicas * SERVERS / (least_s + (mix.answer - steps) * FRONT_END.token_s)


def gains(case: Case) -> dict[str, Figure]:
    """Of a case that drafts and fits: tokens and steps, and the figures of the same replicas without drafts."""
    plain = without_drafts(case)
    figures = {
        "tokens_per_step": _figure(case.order.tokens_per_step, "tokens", "(1 - a^(k + 1)) / (1 - a); Leviathan 2023"),
        "step_alone": _figure(case.decode_s(1) * 1e3, "ms", "verify + drafts, one request"),
        "step_full": _figure(case.decode_s(case.slots) * 1e3, "ms", "verify + drafts, every slot taken"),
        "gain_alone": _figure(plain.token_s(1) / case.token_s(1), "x", _STEP),
    }
    if plain.fit_problems:
        return figures
    figures["plain_alone"] = _figure(plain.token_s(1) * 1e3, "ms", "step without drafts, one request")
    figures["plain_parallel"] = _figure(plain.slots * plain.layout.data, "per replica", "slots without drafts")
    figures["gain_full"] = _figure(_full_tokens_per_s(case) / _full_tokens_per_s(plain), "x", "slots / time per token")
    if case.order.load:
        most, before = full_requests_per_s(case), full_requests_per_s(plain)
        figures["plain_saturation"] = _figure(before, "requests/s", "steps packed with prompts and answers")
        figures["gain_saturation"] = _figure(most / before, "x", "requests/s when full, with and without drafts")
        if case.steady.stable and plain.steady.stable:
            mean_ms = plain.steady.mean_s("tpot") * 1e3
            figures["plain_tpot_mean"] = _figure(mean_ms, "ms", "mean time per token without drafts at this load")
    return figures


def _full_tokens_per_s(case: Case) -> float:
    return case.slots / case.token_s(case.slots)


def _figure(value: float, unit: str, source: str) -> Figure:
    return Figure(value=value, unit=unit, source=source, fidelity="estimated")
