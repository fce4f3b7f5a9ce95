"""No alert and no panel takes a figure of one unit for another one: percent for a share, MiB for bytes."""

from __future__ import annotations

import re

import pytest

from components.monitoring import rules
from components.monitoring.alerts.alert import Alert
from components.monitoring.dashboards import vocabulary
from components.monitoring.dashboards.board import Board, Panel
from components.monitoring.dashboards.boards import BOARDS
from stacks.facts import metrics
from tests import promtool
from tests.alert_site import PROMISE
from tests.unit.promql_units import Measure, measure

UNITS = metrics.known_units()
# What Grafana makes of a figure -> the units that it may have; a count may be drawn as anything.
DRAWN = {
    vocabulary.SECONDS: {"s"},
    vocabulary.SHARE: {"share"},
    vocabulary.BYTES: {"bytes"},
    vocabulary.BYTES_PER_S: {"bytes/s"},
    vocabulary.CELSIUS: {"celsius"},
    vocabulary.WATTS: {"W"},
    "suffix: MHz": {"MHz"},
    "suffix: days": {"days"},
    # Seconds per second: requests at once.
    vocabulary.COUNT: {"share"},
}
SHOWN = {"humanizePercentage": "share", "humanizeDuration": "s"}


def of(expression: str) -> Measure:
    return measure(re.sub(r"\$__(rate_interval|range)", "5m", expression).replace("$gpu_hour_price", "3.5"), UNITS)


@pytest.mark.parametrize(
    ("expression", "unit", "mistakes"),
    [
        ("max(DCGM_FI_DEV_GPU_UTIL) > 0.7", "percent", 1),
        ("max(DCGM_FI_DEV_GPU_UTIL) / 100 > 0.7", "share", 0),
        ("max(DCGM_FI_DEV_GPU_UTIL) > 70", "percent", 0),
        ("vllm:kv_cache_usage_perc > 95", "share", 1),
        ("max(DCGM_FI_DEV_FB_USED) * 1024 * 1024", "bytes", 0),
        ("longhorn_volume_read_latency / 1e9", "s", 0),
        ("longhorn_volume_actual_size_bytes > longhorn_volume_read_latency", "bytes", 1),
        ("sum(rate(vllm:request_queue_time_seconds_sum[5m]))", "share", 0),
    ],
)
def test_units_are_followed_through_an_expression(expression: str, unit: str, mistakes: int) -> None:
    matching = of(expression)
    assert (matching.unit, len(matching.mistakes)) == (unit, mistakes), matching.mistakes


@pytest.mark.parametrize("rule", [rule for group in rules.groups(PROMISE) for rule in group["rules"]], ids=str)
def test_no_rule_compares_a_figure_with_one_of_another_unit(rule: dict[str, str]) -> None:
    assert of(rule["expr"]).mistakes == []


@pytest.mark.parametrize("alert", promtool.listed().values(), ids=lambda alert: alert.name)
def test_an_alert_shows_its_figure_in_its_own_unit(alert: Alert) -> None:
    unit = of(alert.expression).unit
    for function in re.findall(r"\$value \| (\w+)", alert.summary + alert.description):
        assert function not in SHOWN or unit in (None, SHOWN[function]), (alert.name, function, unit)


@pytest.mark.parametrize(
    ("board", "panel"),
    [(board, panel) for board in BOARDS for panel in board.panels()],
    ids=lambda of: of.name if isinstance(of, Board) else of.title,
)
def test_a_panel_draws_its_figures_in_their_own_unit(board: Board, panel: Panel) -> None:
    for query in panel.queries:
        matching = of(query.expression)
        assert matching.mistakes == [], (board.name, panel.title)
        assert matching.unit is None or matching.unit in DRAWN.get(panel.unit, set()), (
            panel.title,
            panel.unit,
            matching.unit,
        )
