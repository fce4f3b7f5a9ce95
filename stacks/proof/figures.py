"""What the proof computes: figures that know their unit, where they come from and how far they can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Fidelity = Literal["published", "calibrated", "estimated"]
"""published: follows from published figures by exact arithmetic. calibrated: fitted to recorded timings. estimated: an
assumption in it was not measured."""


# In the place of a figure that an end does not have.
OVERLOAD = "overload"


@dataclass(frozen=True, kw_only=True)
class Band:
    """Between which factors of a figure the published ones of its kind lie."""

    low: float
    high: float
    rows: int
    """Published figures that it is made of; nine of ten lie in it."""

    @property
    def of_times(self) -> Band:
        """Of a speed's band, the one of the times that go with it."""
        return Band(low=1 / self.high, high=1 / self.low, rows=self.rows)

    def __str__(self) -> str:
        return f"x {self.low:.2f} to {self.high:.2f}"


@dataclass(frozen=True, kw_only=True)
class Span:
    """A figure at the fast and at the slow end of its model's band; None at an end without it, as under overload."""

    fast: float | None
    slow: float | None

    def mapped(self, of: Callable[[float], float]) -> Span:
        """What follows from the figure, at either end that has it."""
        fast, slow = (None if value is None else of(value) for value in (self.fast, self.slow))
        return Span(fast=fast, slow=slow)

    def words(self, unit: str = "") -> str:
        """`21 to 65 ms`, the smaller one first; `21 ms to overload` where one end has none."""
        known = sorted(value for value in (self.fast, self.slow) if value is not None)
        least, *more = [shown(value) for value in known] or [OVERLOAD]
        if more:
            return f"{least} to {more[0]} {unit}".rstrip()
        return f"{least} {unit}".rstrip() + f" to {OVERLOAD}" if known else OVERLOAD

    def __str__(self) -> str:
        return self.words()


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of the proof."""

    value: float
    unit: str
    source: str
    """The formula, or who published it."""
    fidelity: Fidelity
    band: Band | None = None
    """How far published figures of its kind lie from it; None where there are none, and where the figure does not move
    in proportion to the speed: those have a span."""
    span: Span | None = None
    """Computed again at both ends of the band; None where no speed takes part in it, or `band` has it."""

    def __str__(self) -> str:
        return f"{shown(self.value)} {self.unit}".rstrip()


def shown(value: float) -> str:
    """A number for people: thousands apart, three digits that count below a thousand."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:.0f}"
    return f"{value:.3g}"
