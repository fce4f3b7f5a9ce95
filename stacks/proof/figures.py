"""What the proof says: figures that know their unit, where they come from and how far they can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Fidelity = Literal["published", "calibrated", "estimated"]
"""published: follows from published figures by exact arithmetic. calibrated: fitted to recorded timings. estimated: an
assumption in it was not measured."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of the proof."""

    value: float
    unit: str
    source: str
    """The formula, or who published it."""
    fidelity: Fidelity

    def __str__(self) -> str:
        return f"{shown(self.value)} {self.unit}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a knob has its value, for `explain`."""

    key: str
    """Name of the knob, as the engine, the picker or Kubernetes calls it."""
    value: int | float | str | bool
    unit: str
    origin: Literal["derived", "override", "site", "engine default"]
    """derived: the proof says so. override: the site says so, with a reason. site: the site's own key. engine default:
    nothing constrains it."""
    formula: str
    inputs: Mapping[str, float | int | str] = field(default_factory=dict)
    reason: str = ""
    """Of an override."""


def shown(value: float) -> str:
    """A number for people: thousands apart, three digits that count below a thousand."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:.0f}"
    return f"{value:.3g}"
