"""Reads the text in which programs expose their metrics (prometheus.io/docs/instrumenting/exposition_formats)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stacks.facts.metrics import PartMetrics

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? \S+")
_LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
_PARTS = ("_bucket", "_sum", "_count")
UNTYPED = "untyped"
"""Of a metric without a line of its type: kube-state-metrics has none where its first namespace has no such object."""


@dataclass
class Exposed:
    """A metric as a program exposes it."""

    type: str
    labels: set[str] = field(default_factory=set)
    """Of its samples, without a histogram's bounds."""


def read(text: str) -> Mapping[str, Exposed]:
    """Every metric by name; a histogram without its series' endings."""
    exposed: dict[str, Exposed] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            exposed[name] = Exposed(kind)
        elif match := _SAMPLE.match(line):
            name = match["name"]
            whole = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), name)
            metric = exposed.get(name) or exposed.get(whole) or exposed.setdefault(name, Exposed(UNTYPED))
            metric.labels.update(set(_LABEL.findall(match["labels"] or "")) - {"le", "quantile"})
    return exposed


# Labels that a part has for itself, and no expression uses.
_NOT_LISTED = {"otel_scope_name", "otel_scope_schema_url", "otel_scope_version"}


def union(texts: Iterable[str]) -> Mapping[str, Exposed]:
    """What several pods of a part expose together."""
    exposed: dict[str, Exposed] = {}
    for text in texts:
        for name, metric in read(text).items():
            exposed.setdefault(name, Exposed(metric.type)).labels.update(metric.labels)
    return exposed


def differences(
    listed: PartMetrics, exposed: Mapping[str, Exposed], sometimes: frozenset[str] = frozenset()
) -> list[str]:
    """What a list has that the part does not expose so. sometimes: labels that not every site has."""
    wrong = []
    for kind, names in (("counter", listed.counters), ("gauge", listed.gauges), ("histogram", listed.histograms)):
        for name, labels in names.items():
            if name not in exposed:
                wrong += [] if name in listed.rare else [f"{name} is not there"]
                continue
            strange = exposed[name].labels - {*labels, *listed.common_labels} - _NOT_LISTED - sometimes
            if exposed[name].type not in (kind, UNTYPED) or strange:
                labels_of = ", ".join(sorted(strange)) or "the listed labels"
                wrong.append(f"{name} is a {exposed[name].type} with {labels_of}")
    return wrong
