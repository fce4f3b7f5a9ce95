"""Reads `metrics/PART.yaml`: which metrics the pinned version of each part exposes, with types and labels.

The files hold what rules and dashboards may build on, not every metric of a part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from stacks.facts.records import Record, read_facts

FOLDER = Path(__file__).parent / "metrics"
EVERY_TARGET = ("job", "instance", "namespace", "pod", "container", "endpoint")
"""Labels that a PodMonitor gives every target (prometheus-operator, Documentation/api-reference)."""
OF_PROMETHEUS: Mapping[str, tuple[str, ...]] = {
    "up": EVERY_TARGET,
    "scrape_duration_seconds": EVERY_TARGET,
    "ALERTS": ("alertname", "alertstate", "severity", "model"),
}
"""What Prometheus adds by itself; `up` also has the target's own labels."""

Unit = Literal["s", "ns", "bytes", "MiB", "bytes/s", "share", "percent", "celsius", "W", "MHz", "days"]
_SUFFIXES: Mapping[str, Unit] = {"_seconds": "s", "_bytes": "bytes", "_ratio": "share"}


class PartMetrics(Record):
    """Metrics of one part of the platform."""

    part: str
    """Its name."""
    version: str
    """The release that they were read of."""
    job: str
    """Value of the label `job` that its targets have."""
    source: str
    """Where they were read."""
    target_labels: tuple[str, ...] = ()
    """Labels that the monitors give its targets or samples beyond EVERY_TARGET."""
    common_labels: tuple[str, ...] = ()
    """Labels of nearly every metric."""
    created: bool = False
    """Whether each counter and histogram has a gauge `_created` beside it."""
    counters: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Name -> labels beyond the common ones."""
    gauges: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The same of gauges."""
    histograms: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The same of histograms, without `_bucket`, `_sum` and `_count`."""
    bounds: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Upper bounds of a histogram's buckets, rising and without infinity, where something is decided by them."""
    units: dict[str, Unit] = Field(default_factory=dict)
    """Unit of the metrics whose name does not end in it, as the part's documentation states it."""
    rare: tuple[str, ...] = ()
    """Metrics that exist only once their event has happened."""

    @model_validator(mode="after")
    def _named_once(self) -> PartMetrics:
        named = [*self.counters, *self.gauges, *self.histograms]
        wrong = sorted({name for name in named if named.count(name) > 1} | {*self.rare, *self.units}.difference(named))
        if wrong:
            raise ValueError(f"{self.part}: named twice, or without a type: {', '.join(wrong)}")
        unbound = [name for name, bounds in self.bounds.items() if name not in self.histograms or not _rising(bounds)]
        if unbound:
            raise ValueError(f"{self.part}: bounds that do not rise, or of no histogram: {', '.join(unbound)}")
        return self

    @property
    def series(self) -> Mapping[str, tuple[str, ...]]:
        """Every name of the exposition with the part's own labels."""
        series = {name: (*self.common_labels, *labels) for name, labels in (self.counters | self.gauges).items()}
        for name, labels in self.histograms.items():
            own = (*self.common_labels, *labels)
            series |= {f"{name}_bucket": (*own, "le"), f"{name}_sum": own, f"{name}_count": own}
        if self.created:
            series |= {f"{name.removesuffix('_total')}_created": series[name] for name in self.counters}
            series |= {f"{name}_created": series[f"{name}_sum"] for name in self.histograms}
        return series


def _rising(bounds: tuple[float, ...]) -> bool:
    return bool(bounds) and bounds == tuple(sorted(set(bounds)))


@cache
def load() -> Mapping[str, PartMetrics]:
    """All parts, by the name of their file."""
    return {path.stem: read_facts(path, PartMetrics) for path in sorted(FOLDER.glob("*.yaml"))}


def known_labels() -> Mapping[str, frozenset[str]]:
    """Each series that Prometheus has of the platform: its name, and every label that it may have there."""
    series: dict[str, frozenset[str]] = {}
    targets: set[str] = set()
    for part in load().values():
        targets.update(part.target_labels)
        for name, labels in part.series.items():
            series[name] = series.get(name, frozenset()) | {*labels, *part.target_labels, *EVERY_TARGET}
    return series | {name: frozenset({*labels, *targets}) for name, labels in OF_PROMETHEUS.items()}


def known_units() -> Mapping[str, Unit]:
    """Unit of each series that has one: by its part's file, or by the end of its name."""
    units: dict[str, Unit] = {}
    for part in load().values():
        for name in (*part.counters, *part.gauges, *part.histograms):
            unit = part.units.get(name) or next((u for end, u in _SUFFIXES.items() if name.endswith(end)), None)
            if unit is not None:
                units |= dict.fromkeys((name, f"{name}_bucket", f"{name}_sum"), unit)
    return units
