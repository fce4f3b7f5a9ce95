"""What a dashboard is made of: a question, groups of panels, and queries with a unit. Without a word of Grafana's."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

# Grafana's grid.
GRID_COLUMNS = 24
# An id of a panel is a whole number of 31 bits.
_MOST_ID = 2**31 - 1


class Shape(StrEnum):
    """How a panel shows its series."""

    LINES = "lines"
    STACKED = "stacked"
    FIGURE = "figure"


_SIZES = {Shape.LINES: (8, 8), Shape.STACKED: (8, 8), Shape.FIGURE: (6, 5)}


@dataclass(frozen=True, kw_only=True)
class Query:
    """One expression in PromQL, and how each of its series is called: `{{model}}` is the value of a label."""

    expression: str
    legend: str
    is_target: bool = False
    """What a site promised, drawn as a dashed line."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A question or a figure, with what its answer means."""

    title: str
    good: str
    """What good looks like."""
    do: str
    """What to do when it does not look like that."""
    unit: str
    """Grafana's name of the unit."""
    queries: tuple[Query, ...]
    shape: Shape = Shape.LINES
    runbook: str | None = None
    """The page for it, without its ending; None: that of the group, if it has one."""
    not_in_lab: str = ""
    """Why the lab has no data for it; empty where it has."""

    @property
    def description(self) -> str:
        """What good looks like, and what to do otherwise."""
        return f"Good: {self.good}\n\nOtherwise: {self.do}"

    @property
    def identity(self) -> int:
        """Grafana's number of the panel, out of its title: another panel beside it does not change it."""
        return zlib.crc32(self.title.encode()) % _MOST_ID + 1

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows on the grid."""
        return _SIZES[self.shape]


@dataclass(frozen=True, kw_only=True)
class PanelGroup:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]
    runbook: str | None = None
    """The page for all of them, without its ending."""
    mode: str | None = None
    """The row of the failure mode that they show; None: the group is about its runbook."""

    @property
    def identity(self) -> int:
        """Grafana's number of the heading, out of its title."""
        return zlib.crc32(f"group {self.title}".encode()) % _MOST_ID + 1


@dataclass(frozen=True, kw_only=True)
class Board:
    """One question about the platform."""

    name: str
    """Of the file and, behind the platform's, of the dashboard's address."""
    title: str
    question: str
    groups: tuple[PanelGroup, ...]
    has_price: bool = False
    """Whether it asks for the price of a GPU hour."""

    @property
    def uid(self) -> str:
        """What Grafana's addresses and links name it by."""
        return f"inference-{self.name}"

    def panels(self) -> Iterator[Panel]:
        """All of its panels, from the top."""
        for group in self.groups:
            yield from group.panels


@dataclass(frozen=True, kw_only=True)
class PanelPlace:
    """Where something is on the grid, in its units; `y` counts from the top."""

    x: int
    y: int
    width: int
    height: int


def placed(panels: tuple[Panel, ...], top: int) -> list[PanelPlace]:
    """Places of panels from left to right below `top`; one that has no room on its line begins the next."""
    places: list[PanelPlace] = []
    x, y, line_height = 0, top, 0
    for panel in panels:
        width, height = panel.size
        if x + width > GRID_COLUMNS:
            x, y, line_height = 0, y + line_height, 0
        places.append(PanelPlace(x=x, y=y, width=width, height=height))
        x, line_height = x + width, max(line_height, height)
    return places
