"""Tokens as seconds of a GPU: what a limit of a tenant may take of a model's GPUs, and what was used of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from components.specs.limits import LIMITS, scope_of
from floor.counts import listed
from stacks.plan.models import ModelPlan, RevisionPlan
from stacks.proof import money
from stacks.proof.demand import Load
from stacks.proof.figures import shown
from stacks.site.model import SiteConfig

_WINDOWS = {limit.key: limit.unit for limit in LIMITS if limit.counts_tokens}
_SECONDS = {"Minute": 60, "Hour": 3600, "Day": 86_400}
# Lines that people read.
_MOST_LINES = 5


@dataclass(frozen=True, kw_only=True)
class TokenTime:
    """GPU-seconds that a token takes of a model's GPUs while these are as busy as the targets allow."""

    prompt_s: float
    """One that is computed."""
    cached_s: float
    answer_s: float

    def of(self, prompt: float, cached: float, answers: float) -> float:
        """GPU-seconds of so many tokens. prompt: of all prompts, the cached ones included."""
        return (prompt - cached) * self.prompt_s + cached * self.cached_s + answers * self.answer_s


def token_time(revision: RevisionPlan) -> TokenTime | None:
    """None without a load that the revision carries.

    All GPU-seconds of its replicas at the largest load within the targets, by what each kind of token takes of a
    step there: at less, steps carry fewer tokens, and what is left of the time is idle.
    """
    proof = revision.proof
    # An uncertain one may carry nothing at the computed figures.
    if not proof.serving or not proof.capacity_requests_per_s:
        return None
    full = proof.case.again(requests_per_s=proof.capacity_requests_per_s)
    load, work = full.steady.load, money.work(full)
    cached = load.prompt_tokens.mean * load.prefix_hit
    answers = load.answer_tokens.mean if proof.order.model.task == "generate" else 0.0
    weighed = TokenTime(prompt_s=work.fresh_s, cached_s=work.cached_s, answer_s=work.answer_s)
    busy = load.requests_per_s * weighed.of(load.prompt_tokens.mean, cached, answers)
    weight = full.gpus * proof.order.hardware.share / busy
    return TokenTime(prompt_s=work.fresh_s * weight, cached_s=work.cached_s * weight, answer_s=work.answer_s * weight)


def describe_gpu_time(site: SiteConfig, models: Mapping[str, ModelPlan]) -> list[str]:
    """A line for each tenant with token limits, those that take most first."""
    lines = sorted(_lines(site, models), reverse=True)
    rest = len(lines) - _MOST_LINES
    return [
        *(f"  GPU time    {text}  [estimated]" for _, text in lines[:_MOST_LINES]),
        *([f"  GPU time    {rest:,} more: no larger shares than these"] if rest > 0 else []),
    ]


def _lines(site: SiteConfig, models: Mapping[str, ModelPlan]) -> Iterator[tuple[float, str]]:
    """(largest share of a model's GPUs, text)."""
    for tenant, limits in site.limits.items():
        whole = {key: most for key, most in limits.items() if key in _WINDOWS and scope_of(key)[:2] == ("", "")}
        if not whole:
            continue
        # Over time, no other one lets more through.
        key = min(whole, key=lambda key: whole[key] / _SECONDS[_WINDOWS[key]])
        revisions = [models[name].dedicated.get(tenant, models[name].stable) for name in site.tenants[tenant].models]
        shares = sorted(_shares(whole[key], _SECONDS[_WINDOWS[key]], revisions), reverse=True)
        if shares:
            texts = [f"{shown(taken)} GPU-seconds of {model} ({_percent(share)} %)" for share, taken, model in shares]
            unit = _WINDOWS[key].lower()
            yield shares[0][0], f"{tenant}: {whole[key]:,} tokens per {unit} take up to {listed(texts, ' or ')}"


def _shares(tokens: int, seconds: int, revisions: Iterable[RevisionPlan]) -> Iterator[tuple[float, float, str]]:
    """(share of what the model has, GPU-seconds, model), if all are asked of it, as its load mixes them."""
    for revision in revisions:
        load, time = revision.proof.order.load, token_time(revision)
        if load is None or time is None:
            continue
        taken = tokens * _mean(load, time, generates=revision.proof.order.model.task == "generate")
        case = revision.proof.case
        yield taken / (case.gpus * case.order.hardware.share * seconds), taken, revision.name


def _percent(share: float) -> str:
    return f"{100 * share:,.0f}" if share >= 0.01 else "below 1"


def _mean(load: Load, time: TokenTime, *, generates: bool) -> float:
    """GPU-seconds of a mean token."""
    prompt, answers = load.prompt_tokens.mean, load.answer_tokens.mean if generates else 0.0
    return time.of(prompt, prompt * load.prefix_hit, answers) / (prompt + answers)
