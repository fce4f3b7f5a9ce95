"""The outcome of a site's twin as text for a terminal and as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from floor.counts import counted
from stacks.facts.hardware import GPUS, GpuSlice
from stacks.proof.demand import PERCENTS
from stacks.proof.figures import Figure, shown
from stacks.whatif.outcome import (
    MOST_REFUSED,
    Column,
    ModelOutcome,
    SiteOutcome,
    TierOutcome,
    percent_text,
)

_LABEL, _COLUMN = 12, 31
_LATENCIES = (("ttft", "TTFT"), ("itl", "ITL"), ("tpot", "TPOT"))
_REFUSED_BY = (
    ("share_gateway", "gateway"),
    ("share_picker", "picker"),
    ("share_engine", "engine"),
    ("share_nowhere", "no replica"),
)
_NONE = "-"
FALLBACK = "none: no request goes to another model"


def text(outcome: SiteOutcome) -> str:
    """All models, each with a table: as declared, in the scenario, and the target."""
    asked = f"what if {outcome.words}?" if any(model.scenario for model in outcome.models) else "as declared."
    heading = f"site {outcome.site}: {asked} Simulated with seed {outcome.seed}; times are p50 / p95 / p99"
    heading += "; every figure is estimated"
    blocks = [heading, *("\n".join(_model(model)) for model in outcome.models)]
    blocks += [f"{name}: not simulated, {why}" for name, why in outcome.skipped.items()]
    return "\n\n".join(blocks)


def record(outcome: SiteOutcome) -> dict[str, Any]:
    """The same as data."""
    return {
        "site": outcome.site,
        "scenario": outcome.words,
        "seed": outcome.seed,
        "verdict": outcome.verdict,
        "kept": outcome.verdict == "holds",
        "models": {model.model: _model_record(model) for model in outcome.models},
        "skipped": dict(outcome.skipped),
    }


def _model_record(model: ModelOutcome) -> dict[str, Any]:
    return {
        "layout": model.layout,
        "gpu": model.gpu,
        "gpus": model.gpus,
        "replicas": model.replicas,
        "targets": {target.figure: target.ms for target in model.targets},
        "verdict": model.verdict if model.targets else None,
        "kept": model.verdict == "holds",
        "fallback_share": None,
        "as_declared": _column_record(model.declared),
        "scenario": _column_record(model.scenario) if model.scenario else None,
        "end_of_the_band": _column_record(model.end) if model.end else None,
    }


def _column_record(column: Column) -> dict[str, Any]:
    return {
        "kept": column.kept,
        "replicas": column.replicas,
        "figures": _figures_record(column.figures),
        "notes": list(column.notes),
        "tiers": [
            {
                "tier": tier.tier,
                "priority": tier.priority,
                "share": tier.share,
                "requests": tier.requests,
                "figures": _figures_record(tier.figures),
                "misses": list(tier.misses),
            }
            for tier in column.by_tier
        ],
    }


def _figures_record(figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Without what JSON has no number for: no request got so far, or it never ends."""
    return {
        key: asdict(figure) | {"value": figure.value if math.isfinite(figure.value) else None}
        for key, figure in figures.items()
    }


def _model(model: ModelOutcome) -> Iterator[str]:
    unit = "slice" if isinstance(GPUS[model.gpu], GpuSlice) else "GPU"
    size = f"{model.replicas} x {model.layout} = {counted(model.gpus, unit)}"
    yield f"{model.model}: {_verdict(model)}. {size} of {model.gpu}"
    yield _row("", "as declared", "scenario" if model.scenario else "", "target")
    for place, tier in enumerate(model.declared.by_tier):
        changed = model.scenario.by_tier[place] if model.scenario else None
        if tier.tier or len(model.declared.by_tier) > 1:
            share = f"{100 * tier.share:.0f} % of the requests"
            yield _row("tier", f"{tier.tier or 'without one'}, priority {tier.priority}, {share}")
        yield from _tier(model, tier, changed)
    yield from _whole(model)
    yield from (_row("problem", miss) for miss in _misses(model.last))
    yield from _at_the_end(model)
    yield from (_row("note", note) for note in model.last.notes)
    if model.scenario and not model.declared.kept:
        yield _row("note", "it misses targets without the scenario too")


def _misses(column: Column) -> Iterator[str]:
    for tier in column.by_tier:
        of_tier = f"{tier.tier}: " if tier.tier and len(column.by_tier) > 1 else ""
        yield from (f"{of_tier}{miss}" for miss in tier.misses)


def _at_the_end(model: ModelOutcome) -> Iterator[str]:
    """Of an uncertain model, what is otherwise at an end of its band."""
    if model.verdict != "uncertain" or model.end is None:
        return
    if model.end.kept:
        yield _row("uncertain", "at the fast end of the band every target is kept")
    yield from (_row("uncertain", f"at the slow end of the band: {miss}") for miss in _misses(model.end))


def _verdict(model: ModelOutcome) -> str:
    if not model.targets:
        return "no targets declared"
    return {"holds": "keeps its targets", "uncertain": "uncertain", "fails": "BREAKS ITS TARGETS"}[model.verdict]


def _tier(model: ModelOutcome, declared: TierOutcome, changed: TierOutcome | None) -> Iterator[str]:
    def row(label: str, cell: Callable[[TierOutcome], str], target: str = "") -> str:
        return _row(label, cell(declared), cell(changed) if changed else "", target)

    def has(key: str) -> bool:
        return key in declared.figures or (changed is not None and key in changed.figures)

    yield row("requests", lambda side: str(side.figures["requests_per_s"]))
    for key, label in _LATENCIES:
        if has(f"{key}_p50"):
            targets = [target for target in model.targets if target.metric == key]
            limits = ", ".join(f"p{target.percent} {target.ms:,.0f} ms" for target in targets)
            yield row(label, partial(_percentiles, key=key), limits)
    limit = f"{100 * MOST_REFUSED:g} %" if model.targets and declared.priority >= 0 else ""
    yield row("refused", _refused, limit)
    if changed and changed.figures["lost"].value:
        yield row("lost", lambda side: percent_text(side.figures["lost"].value))
    yield row("cached", lambda side: percent_text(side.figures["prefix_hit"].value))


def _whole(model: ModelOutcome) -> Iterator[str]:
    def row(label: str, cell: Callable[[Column], str]) -> str:
        return _row(label, cell(model.declared), cell(model.scenario) if model.scenario else "")

    if model.last.replicas != model.replicas:
        yield row("replicas", lambda column: f"{column.replicas}")
    yield row("answers", lambda column: _of(column, "answer_tokens_per_s"))
    if "hour" in model.declared.figures:
        yield row("cost", lambda column: _of(column, "hour"))
        yield row("", lambda column: _of(column, "per_million"))
    yield _row("fallback", FALLBACK)
    if model.scenario and "recovery" in model.scenario.figures:
        seconds = model.scenario.figures["recovery"].value
        yield _row("recovers", "", f"after {seconds:,.0f} s" if math.isfinite(seconds) else "not by itself")


def _of(column: Column, key: str) -> str:
    return str(column.figures[key]) if key in column.figures else _NONE


def _percentiles(tier: TierOutcome, *, key: str) -> str:
    figures = [tier.figures.get(f"{key}_p{percent}") for percent in PERCENTS]
    values = [math.nan if figure is None else figure.value for figure in figures]
    return _NONE if all(map(math.isnan, values)) else f"{' / '.join(map(_number, values))} ms"


def _number(value: float) -> str:
    if math.isnan(value):
        return _NONE
    return shown(value) if math.isfinite(value) else "never"


def _refused(tier: TierOutcome) -> str:
    total = tier.figures["shed"].value
    by = [f"{name} {percent_text(tier.figures[key].value)}" for key, name in _REFUSED_BY if tier.figures[key].value]
    return f"{percent_text(total)} ({', '.join(by)})" if len(by) > 1 else ", ".join(by) or "none"


def _row(label: str, declared: str, scenario: str = "", target: str = "") -> str:
    """One line; a text that needs more room than its column moves the next ones."""
    return f"  {label:<{_LABEL}}{declared:<{_COLUMN}}{scenario:<{_COLUMN}}{target}".rstrip()
