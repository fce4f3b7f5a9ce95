"""The listed metrics of each part, and the reader that holds expressions against them."""

from __future__ import annotations

import pytest

from stacks.facts import metrics, versions
from tests import exposition
from tests.unit import promql

pytestmark = pytest.mark.row("002.09")


def test_versions_are_the_pinned_ones() -> None:
    pins, parts = versions.load(), metrics.load()
    for image in ("endpoint_picker", "simulator", "vllm"):
        assert parts[image].version == versions.parts(getattr(pins.images, image))[1]
    for part, chart in (
        ("gateway_requests", pins.charts["ai_gateway"]),
        ("gateway_controllers", pins.charts["envoy_gateway"]),
        ("dcgm_exporter", pins.charts["dcgm_exporter"]),
        ("longhorn", pins.charts["longhorn"]),
    ):
        assert parts[part].version == chart.version


def test_a_name_without_a_type_or_with_two_is_refused() -> None:
    given = {"part": "engine", "version": "v1", "job": "engines", "source": "a scrape"}
    with pytest.raises(ValueError, match="named twice, or without a type: a, b"):
        metrics.PartMetrics(**given, counters={"a": ()}, gauges={"a": ()}, rare=("b",))


def test_bounds_rise_and_are_of_a_histogram() -> None:
    given = {
        "part": "engine",
        "version": "v1",
        "job": "engines",
        "source": "a scrape",
        "histograms": {"a": (), "b": ()},
    }
    with pytest.raises(ValueError, match="bounds that do not rise, or of no histogram: a, c"):
        metrics.PartMetrics(**given, bounds={"a": (2, 1), "b": (1, 2), "c": (1,)})


def test_a_histogram_has_its_three_series_and_what_was_created() -> None:
    series = metrics.load()["vllm"].series
    assert series["vllm:inter_token_latency_seconds_bucket"] == ("engine", "model_name", "le")
    assert "vllm:inter_token_latency_seconds_created" in series
    assert series["vllm:request_success_total"] == ("engine", "model_name", "finished_reason")


@pytest.mark.parametrize(
    ("expression", "mistake"),
    [
        ("vllm:gpu_cache_usage_perc", "no part exposes vllm:gpu_cache_usage_perc"),
        ('up{zone="a"}', "up has no label zone"),
        ("sum by (tenant) (vllm:num_requests_running)", "vllm:num_requests_running{} has no label tenant"),
        ("histogram_quantile(0.5, sum(vllm:time_to_first_token_seconds_bucket))", "has no label le"),
        ("sum(up) by (", "unclosed left parenthesis"),
    ],
)
def test_what_no_part_exposes_is_found(expression: str, mistake: str) -> None:
    (refusal,) = promql.read(expression, metrics.known_labels()).mistakes
    assert mistake in refusal


def test_an_exposition_is_read_with_types_and_labels() -> None:
    text = """# HELP a_seconds Time
# TYPE a_seconds histogram
a_seconds_bucket{path="/a{b}",le="1"} 2
a_seconds_sum{path="/a{b}"} 0.5
# TYPE b_total counter
b_total 3
untyped_total 4
"""
    exposed = exposition.read(text)
    assert {name: metric.type for name, metric in exposed.items()} == {
        "a_seconds": "histogram",
        "b_total": "counter",
        # Prometheus reads it too.
        "untyped_total": "untyped",
    }
    assert [metric.labels for metric in exposed.values()] == [{"path"}, set(), set()]


def test_a_metric_without_its_type_is_there_with_its_labels() -> None:
    listed = metrics.PartMetrics(part="state", version="v1", job="state", source="a scrape", gauges={"d": ("pod",)})
    assert exposition.differences(listed, exposition.read('d{pod="a"} 1\n')) == []
    assert exposition.differences(listed, exposition.read('d{node="a"} 1\n')) == ["d is a untyped with node"]


def test_a_list_that_differs_from_what_a_part_exposes_is_found() -> None:
    listed = metrics.PartMetrics(
        part="engine",
        version="v1",
        job="engines",
        source="a scrape",
        common_labels=("pod",),
        counters={"a_total": ("code",), "b_total": (), "c_total": ()},
        gauges={"d": (), "gone": (), "rare": ()},
        rare=("rare",),
    )
    first = '# TYPE a_total counter\na_total{pod="1",code="2",client="x"} 1\n# TYPE b_total gauge\nb_total 1\n'
    second = '# TYPE c_total counter\nc_total{zone="1"} 1\n# TYPE d gauge\nd{otel_scope_name="1"} 1\n'
    assert exposition.differences(listed, exposition.union([first, second]), frozenset({"client"})) == [
        "b_total is a gauge with the listed labels",
        "c_total is a counter with zone",
        "gone is not there",
    ]
