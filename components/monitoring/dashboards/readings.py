"""What a dashboard's queries return of a Prometheus: the numbers behind each panel, without Grafana.

Prometheus's HTTP API: https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from floor.problems import ProblemError

# What Grafana would put in: every model and tenant, and rates over four scrapes.
EVERYTHING = ".*"
_TIMEOUT_S = 30.0


class ReadingError(ProblemError):
    """Prometheus cannot be asked, or refuses a query."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time that is asked for: the `length_s` seconds before `until_s` (since 1970), a value every `step_s`."""

    until_s: float
    length_s: int
    step_s: int
    rate_s: int
    """Of `$__rate_interval`; Grafana takes at least four times the seconds between two scrapes."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a panel."""

    name: str
    seconds: tuple[float, ...]
    """Before the end of the window: none is above 0."""
    values: tuple[float, ...]
    is_target: bool


@dataclass(frozen=True, kw_only=True)
class PanelReading:
    """What a panel's queries returned."""

    title: str
    group: str
    unit: str
    series: tuple[Series, ...]

    @property
    def has_data(self) -> bool:
        """Whether anything was measured: what was promised is there without a request."""
        return any(not line.is_target for line in self.series)


def read_panels(
    client: httpx.Client, text: str, window: Window, values: Mapping[str, str] | None = None
) -> list[PanelReading]:
    """Runs every query of a dashboard (Grafana's JSON) and returns its panels from the top.

    client: its base address is Prometheus's. values: of the dashboard's variables, beside models and tenants.
    Raises ReadingError.
    """
    known = {"model": EVERYTHING, "tenant": EVERYTHING, "gpu_hour_price": "1", **(values or {})}
    panels: list[PanelReading] = []
    group = ""
    for panel in json.loads(text)["panels"]:
        if panel["type"] == "row":
            group = panel["title"]
            continue
        targets = _targets(panel)
        series = [
            line
            for query in panel["targets"]
            for line in _series(client, query, window, known, is_target=query["refId"] in targets)
        ]
        unit = panel["fieldConfig"]["defaults"]["unit"]
        panels.append(PanelReading(title=panel["title"], group=group, unit=unit, series=tuple(series)))
    return panels


def filled_in(expression: str, window: Window, values: Mapping[str, str]) -> str:
    """An expression with Grafana's variables replaced. Raises ReadingError for one without a value."""
    known = {
        "__rate_interval": f"{window.rate_s}s",
        "__interval": f"{window.step_s}s",
        "__range": f"{window.length_s}s",
        **values,
    }

    def value(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise ReadingError(f"no value for ${match[1]} in {expression}", fix="correct the dashboard's variables")
        return known[match[1]]

    return re.sub(r"\$([A-Za-z_]\w*)", value, expression)


def named(legend: str, labels: Mapping[str, str]) -> str:
    """The name of a series, as Grafana makes it of `{{label}}`."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), legend).strip()


def _targets(panel: Mapping[str, Any]) -> set[str]:
    """Queries that draw what a site promised: those with a dashed line."""
    overrides: Sequence[Mapping[str, Any]] = panel["fieldConfig"].get("overrides", [])
    return {
        override["matcher"]["options"]
        for override in overrides
        if any(prop["id"] == "custom.lineStyle" for prop in override["properties"])
    }


def _series(
    client: httpx.Client, query: Mapping[str, Any], window: Window, values: Mapping[str, str], *, is_target: bool
) -> list[Series]:
    expression = filled_in(query["expr"], window, values)
    asked = {
        "query": expression,
        "start": window.until_s - window.length_s,
        "end": window.until_s,
        "step": window.step_s,
    }
    try:
        answer = client.post("/api/v1/query_range", data=asked, timeout=_TIMEOUT_S)
        content = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise ReadingError(
            f"{client.base_url} does not answer as Prometheus does: {error}", fix="the address of a running Prometheus"
        ) from error
    if content.get("status") != "success":
        why = content.get("error", answer.status_code)
        raise ReadingError(f"Prometheus refuses {expression}: {why}", fix="correct the dashboard's query")
    lines = []
    for result in content["data"]["result"]:
        points = [(float(at) - window.until_s, float(value)) for at, value in result["values"]]
        # Not a number: nothing was counted, as in a quantile of no requests.
        real = [(at, value) for at, value in points if value == value and abs(value) != float("inf")]
        if real:
            lines.append(
                Series(
                    name=named(query["legendFormat"], result["metric"]),
                    seconds=tuple(at for at, _ in real),
                    values=tuple(value for _, value in real),
                    is_target=is_target,
                )
            )
    return sorted(lines, key=lambda line: line.name)
