"""What is left between a model's proven latencies and its targets, for the site before and after a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from floor.problems import SiteError
from sitectl.change.saved_previews import SAVE_ONE
from sitectl.shell import temporary
from sitectl.shell.errors import SitectlError
from stacks.plan.site_plan import SitePlan, plan_read
from stacks.proof.demand import METRICS, PERCENTS
from stacks.site.loader import read_site_file

# Figure of the proof, and what people call it; a target of the same name bounds it.
_FIGURES = {f"{metric}_p{percent}": f"{metric.upper()} p{percent}" for metric in METRICS for percent in PERCENTS}


@dataclass(frozen=True, kw_only=True)
class Headroom:
    """One figure of one model in milliseconds, estimated by the proof; None if nothing is estimated or required."""

    model: str
    figure: str
    before_ms: float | None
    before_target_ms: float | None
    after_ms: float | None
    after_target_ms: float | None

    @property
    def before(self) -> float | None:
        """Percent of the target that was left."""
        return _left(self.before_ms, self.before_target_ms)

    @property
    def after(self) -> float | None:
        """Percent of the target that will be left."""
        return _left(self.after_ms, self.after_target_ms)

    @property
    def change(self) -> float | None:
        """Percentage points more (or fewer)."""
        return None if self.before is None or self.after is None else self.after - self.before

    @property
    def moved(self) -> bool:
        """Whether a latency or a target is another one than before."""
        return (self.before_ms, self.before_target_ms) != (self.after_ms, self.after_target_ms)

    def record(self) -> dict[str, Any]:
        """As `--json` and a saved preview have it."""
        return {**asdict(self), "before_percent": self.before, "after_percent": self.after, "change": self.change}


def between(before: SitePlan | None, after: SitePlan) -> list[Headroom]:
    """Every revision of `after` that has a target on either side, by name."""
    old, new = _sides(before), _sides(after)
    rows = []
    for model in sorted(after.named):
        for figure, title in _FIGURES.items():
            was, target_was = old.get((model, figure), (None, None))
            is_, target = new[model, figure]
            if target is not None or target_was is not None:
                rows.append(
                    Headroom(
                        model=model,
                        figure=title,
                        before_ms=was,
                        before_target_ms=target_was,
                        after_ms=is_,
                        after_target_ms=target,
                    )
                )
    return rows


def of_records(records: Any) -> list[Headroom]:
    """From a saved preview, which may come from any source. Raises SitectlError for another form."""
    try:
        return [_of_record(record) for record in records or ()]
    except (TypeError, ValueError, KeyError) as error:
        raise SitectlError(
            "the SLO headroom in this preview has not the form that sitectl writes", fix=SAVE_ONE
        ) from error


def _of_record(record: Mapping[str, Any]) -> Headroom:
    return Headroom(
        model=str(record["model"]),
        figure=str(record["figure"]),
        before_ms=_number(record, "before_ms"),
        before_target_ms=_number(record, "before_target_ms"),
        after_ms=_number(record, "after_ms"),
        after_target_ms=_number(record, "after_target_ms"),
    )


def least(rows: Sequence[Headroom]) -> Headroom | None:
    """The tightest after the change."""
    known = [row for row in rows if row.after is not None]
    return min(known, key=lambda row: row.after or 0, default=None)


def _sides(plan: SitePlan | None) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """(model, figure) -> (milliseconds, target)."""
    sides: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    for name, proof in plan.proofs.items() if plan else ():
        for figure in _FIGURES:
            value = proof.serving.get(figure)
            target = proof.order.slo.by_key.get(f"{figure}_ms")
            sides[name, figure] = (round(value.value, 1) if value else None, target)
    return sides


def _left(value: float | None, target: float | None) -> float | None:
    return None if value is None or not target else round(100 * (1 - value / target), 1)


def _number(record: Mapping[str, Any], key: str) -> float | None:
    return None if record[key] is None else float(record[key])


def plan_of(text: str | None, name: str, project: Path) -> SitePlan | None:
    """The plan of a site's text; None where there was none, or one that today's program does not take.

    project: the folder with the lock of its images. What weights were locked changes nothing that is compared.
    """
    if text is None:
        return None
    with temporary.folder() as folder:
        file = folder / name
        file.write_text(text)
        try:
            return plan_read(read_site_file(file), project, without=["weights"])
        except SiteError:
            return None
