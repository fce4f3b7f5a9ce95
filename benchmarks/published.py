"""The proof's speeds next to published ones: every row, also those that are far away."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.published_rows import PublishedRow, published_rows
from benchmarks.report import Cell, Result, Table
from lab.paths import Lab
from stacks.facts.hardware import GPUS
from stacks.proof.bands import ALL, FEWEST_ROWS, BandEntry

HELP = "the proof's speeds next to published measurements; needs no lab and no GPU"
NEEDS_LAB = False
PARAMETERS = ()
# A published and a derived speed are called close within this factor, either way.
CLOSE = 1.5
# Tokens of an answer from which on a run is the engine's.
SHORTEST_ANSWER = 16
# Of so many rows one in twenty is left out at each end of a band.
_TRIM = 20


@dataclass(frozen=True)
class Held:
    """A published row and what the proof gives."""

    row: PublishedRow

    @property
    def pace(self) -> float:
        """Ours over the published speed."""
        return self.row.pace

    @property
    def off(self) -> float:
        """The larger over the smaller one."""
        return max(self.pace, 1 / self.pace)

    @property
    def fitted(self) -> bool:
        return not self.row.series.held_out


def held_rows() -> list[Held]:
    """Every published row."""
    return [Held(row) for row in published_rows()]


def bands(rows: Iterable[Held]) -> dict[str, BandEntry]:
    """Published speeds over ours by group: nine of ten of the rows held out, and of the fitted ones where those are
    farther away. A group has rows held out, and more than one series, as rows of a series share their errors.

    Left out are estimates, and unloaded first tokens and answers of a few tokens, which are mostly an engine's front
    end and a client's start.
    """
    groups: dict[str, list[Held]] = {}
    for held in rows:
        series = held.row.series
        if series.measured and held.row.metric != "ttft_ms" and held.row.answer >= SHORTEST_ANSWER:
            for group in (ALL, series.format, f"{GPUS[series.gpu].family} {series.format}"):
                groups.setdefault(group, []).append(held)
    own = {
        group: _band(members)
        for group, members in sorted(groups.items())
        if len(members) >= FEWEST_ROWS
        and any(not held.fitted for held in members)
        and len({held.row.series.name for held in members}) > 1
    }
    return {group: _widened(group, own) for group in own}


def _widened(group: str, own: Mapping[str, BandEntry]) -> BandEntry:
    """What is asked for where nothing closer is known is no narrower than any band that it is made of."""
    within = [entry for name, entry in own.items() if group in (ALL, name, name.partition(" ")[2])]
    low, high = min(entry.low for entry in within), max(entry.high for entry in within)
    return own[group].model_copy(update={"low": low, "high": high})


def _band(rows: Sequence[Held]) -> BandEntry:
    lows, highs = [1.0], [1.0]
    for fitted in (False, True):
        factors = sorted(1 / held.pace for held in rows if held.fitted == fitted)
        trimmed = len(factors) // _TRIM
        if factors:
            lows.append(factors[trimmed])
            highs.append(factors[-1 - trimmed])
    # Rounded outward, so that what it is made of lies in it.
    return BandEntry(
        low=math.floor(min(lows) * 100) / 100,
        high=math.ceil(max(highs) * 100) / 100,
        rows=len(rows),
        held_out=sum(not held.fitted for held in rows),
    )


def run(lab: Lab) -> Result:  # noqa: ARG001
    """Derives every row's figure; the lab is not asked."""
    rows = held_rows()
    return Result(
        benchmark="published",
        question="How close are the proof's speeds to what was measured and published?",
        conditions={"rows": len(rows), "sources": len({held.row.series.source for held in rows})},
        tables=[
            Table(
                title="Every row; a pace above 1 is a proof that promises too much", rows=[_line(held) for held in rows]
            ),
            Table(title="Together", rows=_summary(rows)),
            Table(
                title="Bands: published speed over ours",
                rows=[
                    {"group": group, "low": band.low, "high": band.high, "rows": band.rows, "held out": band.held_out}
                    for group, band in bands(rows).items()
                ],
            ),
        ],
        findings=_findings(rows),
    )


def _line(held: Held) -> dict[str, Cell]:
    row, series = held.row, held.row.series
    return {
        "model": series.model,
        "weights": series.format,
        "cache": series.cache,
        "gpu": series.gpu,
        "layout": str(series.layout),
        "engine": f"{series.engine} {series.version}",
        "prompt / answer": f"{row.prompt + row.cached:,.0f} / {row.answer:,.0f}",
        "load": row.load,
        "unit": row.metric,
        "published": row.figure,
        "ours": row.ours,
        "pace": round(held.pace, 2),
        "use": "fitted" if held.fitted else "held out",
        "source": series.source,
    }


def _summary(rows: Sequence[Held]) -> list[dict[str, Cell]]:
    groups: dict[str, list[Held]] = {"all": list(rows), "fitted": [], "held out": []}
    for held in rows:
        series = held.row.series
        use = "fitted" if held.fitted else "held out"
        for name in (use, f"engine {series.engine}", f"gpu {series.gpu}", f"weights {series.format}", held.row.metric):
            groups.setdefault(name, []).append(held)
    return [_group(name, members) for name, members in groups.items()]


def _group(name: str, rows: Sequence[Held]) -> dict[str, Cell]:
    paces = [held.pace for held in rows]
    return {
        "rows of": name,
        "number": len(rows),
        "median pace": round(median(paces), 2),
        f"within {CLOSE}, %": round(100 * close_share(rows)),
        "least": round(min(paces), 2),
        "most": round(max(paces), 2),
    }


def close_share(rows: Sequence[Held]) -> float:
    """Share of rows that are close, 0 to 1."""
    return sum(held.off <= CLOSE for held in rows) / len(rows)


def _findings(rows: Sequence[Held]) -> list[str]:
    apart = [held for held in rows if not held.fitted]
    worst = max(rows, key=lambda held: held.off)
    middle, apart_middle = median(held.pace for held in rows), median(held.pace for held in apart)
    return [
        f"Median pace {middle:.2f}, {100 * close_share(rows):.0f} % within {CLOSE}.",
        f"Of rows that nothing was fitted to: {apart_middle:.2f}, {100 * close_share(apart):.0f} %.",
        f"The farthest is {worst.off:.1f} times away: {worst.row.series.name}, {worst.row.prompt:g} / "
        f"{worst.row.answer:g} tokens, {worst.row.load}.",
    ]
