"""What the twin gives: figures with unit and source, by tier and model, and whether targets are kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from stacks.proof.demand import PERCENTS, LatencyTarget
from stacks.proof.ends import Verdict
from stacks.proof.figures import Figure
from stacks.whatif.tally import Counts, gap_quantile, quantile

# Requests of a tier of priority 0 and more that may be refused: the rest of an uptime of 99.9 %; chosen.
MOST_REFUSED = 0.001
_WORST_FIRST: tuple[Verdict, ...] = ("fails", "uncertain", "holds")
_SIMULATED = "simulated requests, {count:,} in this column"


@dataclass(frozen=True, kw_only=True)
class Tier:
    """Requests of one priority."""

    name: str
    """Empty for tenants without one."""
    priority: int
    share: float
    """Of the model's requests."""


@dataclass(frozen=True, kw_only=True)
class TierOutcome:
    """Requests of one tier of one model."""

    tier: str
    """Empty for tenants without one."""
    priority: int
    share: float
    """Of the model's requests, as declared or assumed."""
    requests: int
    """That were simulated."""
    figures: Mapping[str, Figure]
    misses: tuple[str, ...]
    """What is beyond a target, in words; empty where all are kept."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One model under one scenario."""

    by_tier: tuple[TierOutcome, ...]
    """By priority, the highest first."""
    figures: Mapping[str, Figure]
    """Of all tiers: cost, tokens, time to recover."""
    replicas: int
    """That serve during the scenario, of those that the site declares."""
    trace: tuple[tuple[float, int], ...] = ()
    """(second, requests under way then) of the first simulation; the change is at second 0."""
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether every tier has its targets."""
        return not any(tier.misses for tier in self.by_tier)


@dataclass(frozen=True, kw_only=True)
class ModelOutcome:
    """One model as declared and in the scenario."""

    model: str
    replicas: int
    layout: str
    gpu: str
    gpus: int
    targets: tuple[LatencyTarget, ...]
    declared: Column
    scenario: Column | None
    """None if nothing was to change."""
    end: Column | None = None
    """The last of them once more, at the slow end of the band of step times where it keeps its targets, and at the fast
    end where it misses one; None without targets."""

    @property
    def verdict(self) -> Verdict:
        """Whether the targets are kept in the last column over the whole band."""
        if self.end is None or self.last.kept == self.end.kept:
            return "holds" if self.last.kept else "fails"
        return "uncertain"

    @property
    def last(self) -> Column:
        """The scenario, or what is declared where there is none."""
        return self.scenario or self.declared


@dataclass(frozen=True, kw_only=True)
class SiteOutcome:
    """All models of a site."""

    site: str
    words: str
    """The scenario."""
    seed: int
    models: tuple[ModelOutcome, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Models that were not simulated, and why."""

    @property
    def verdict(self) -> Verdict:
        """Of the model that is worst off."""
        verdicts = {model.verdict for model in self.models}
        return next((verdict for verdict in _WORST_FIRST if verdict in verdicts), "holds")


def tier_outcome(
    counts: Counts, tier: Tier, targets: tuple[LatencyTarget, ...], *, lasted_s: float, path_s: float
) -> TierOutcome:
    """Figures of a tier's requests.

    lasted_s: of the time in which they came. path_s: seconds of a request outside of the scheduler.
    """
    figures = _figures(counts, lasted_s=lasted_s, path_s=path_s)
    misses = _misses(figures, targets, tier.priority)
    return TierOutcome(
        tier=tier.name,
        priority=tier.priority,
        share=tier.share,
        requests=counts.came,
        figures=figures,
        misses=misses,
    )


def _figures(counts: Counts, *, lasted_s: float, path_s: float) -> dict[str, Figure]:
    source = _SIMULATED.format(count=counts.came)

    def figure(value: float, unit: str) -> Figure:
        return Figure(value=value, unit=unit, source=source, fidelity="estimated")

    figures = {"requests_per_s": figure(counts.came / lasted_s, "requests/s")}
    # A request without a first token at the end waits longer than all others.
    silent = counts.came - len(counts.first_s) - counts.refused - counts.ends["lost"]
    first = [*counts.first_s, *[math.inf] * max(0, silent)]
    for percent in PERCENTS:
        figures[f"ttft_p{percent}"] = figure(1e3 * (quantile(first, percent / 100) + path_s), "ms")
    for percent in PERCENTS if counts.gaps else ():
        figures[f"itl_p{percent}"] = figure(1e3 * gap_quantile(counts.gaps, percent / 100), "ms")
    for percent in PERCENTS if counts.answer_token_s else ():
        figures[f"tpot_p{percent}"] = figure(1e3 * quantile(counts.answer_token_s, percent / 100), "ms")
    came = max(1, counts.came)
    for where in ("gateway", "picker", "engine", "nowhere"):
        figures[f"share_{where}"] = figure(100 * counts.ends[where] / came, "%")
    figures["lost"] = figure(100 * counts.lost / came, "%")
    figures["shed"] = figure(100 * counts.refused / came, "%")
    figures["prefix_hit"] = figure(100 * counts.cached_tokens / max(1, counts.prompt_tokens), "%")
    return figures


def _misses(figures: Mapping[str, Figure], targets: tuple[LatencyTarget, ...], priority: int) -> tuple[str, ...]:
    misses = []
    for target in targets:
        figure = figures.get(target.figure)
        # Not a number: no request got so far, which the share of refusals shows.
        if figure is not None and figure.value > target.ms:
            misses.append(f"{target.title} is {milliseconds(figure.value)}, target {target.ms:,.0f} ms")
    refused = figures["shed"].value
    if targets and priority >= 0 and refused > 100 * MOST_REFUSED:
        misses.append(f"{percent_text(refused)} are refused, at most {100 * MOST_REFUSED:g} % may be")
    return tuple(misses)


def milliseconds(value: float) -> str:
    """A latency for people, with its unit; longer ones in seconds."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "no end"
    return f"{value:,.0f} ms" if value < 1e5 else f"{value / 1e3:,.0f} s"


def percent_text(value: float) -> str:
    """A percentage for people; a little is not nothing."""
    if 0 < value < 0.01:
        return "under 0.01 %"
    return f"{value:.2g} %" if value < 10 else f"{value:.0f} %"
