"""Reads the text in which programs expose their metrics (prometheus.io/docs/instrumenting/exposition_formats)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? \S+")
_LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
_PARTS = ("_bucket", "_sum", "_count")


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
            metric = exposed.get(name) or exposed.get(whole)
            if metric is not None:
                metric.labels.update(set(_LABEL.findall(match["labels"] or "")) - {"le", "quantile"})
    return exposed
