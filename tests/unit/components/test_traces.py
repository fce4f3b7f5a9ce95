"""What the gateway traces, and where it sends the spans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.gateway.gateway import envoy_proxy, gateway_config
from components.gateway.request_log import request_log
from components.gateway.traces import TAGS, tracing
from components.gateway.traffic_policies import client_traffic_policy
from components.specs.gateway import GatewaySpec
from components.specs.request_log import RequestLogSpec
from components.specs.traces import TracesSpec
from floor.headers import TRUSTED_HEADERS
from tests.unit.stacks.wrong_sites import Wrong, refused_and_fixed

pytestmark = pytest.mark.row("002.07", "003.20", "004.13")

COLLECTOR = "otel-collector.observability.svc.cluster.local:4317"


def telemetry(spec: GatewaySpec) -> dict[str, Any]:
    shape: dict[str, Any] = envoy_proxy("g", spec, drain_s=60)["spec"]["telemetry"]
    return shape


def removed(spec: GatewaySpec) -> set[str]:
    headers: list[str] = client_traffic_policy("g", spec)["spec"]["headers"]["earlyRequestHeaders"]["remove"]
    return set(headers)


def test_nothing_is_traced_unless_a_collector_is_named() -> None:
    spec = GatewaySpec(port=80)
    assert set(telemetry(spec)) == {"accessLog"}
    assert removed(spec) == set(TRUSTED_HEADERS)


def test_a_client_cannot_have_itself_traced() -> None:
    spec = GatewaySpec(port=80, traces=TracesSpec(collector=COLLECTOR))
    assert telemetry(spec)["tracing"]["clientSamplingFraction"]["numerator"] == 0
    assert removed(spec) - set(TRUSTED_HEADERS) == {"traceparent", "tracestate"}


@pytest.mark.parametrize(("percent", "parts"), [(100, 10_000), (1, 100), (0.25, 25), (0.01, 1)])
def test_the_set_share_of_requests_is_traced(percent: float, parts: int) -> None:
    fraction = tracing(TracesSpec(collector=COLLECTOR, sampled_percent=percent))["samplingFraction"]
    assert fraction == {"numerator": parts, "denominator": 10_000}


def test_spans_go_to_the_named_collector() -> None:
    provider = tracing(TracesSpec(collector="192.0.2.7:14317"))["provider"]
    assert (provider["type"], provider["host"], provider["port"]) == ("OpenTelemetry", "192.0.2.7", 14317)


def test_spans_ask_for_no_query_and_no_credential() -> None:
    text = json.dumps(TAGS).upper()
    for telling in ("REQ(:PATH)", "ORIGINAL-PATH", "AUTHORIZATION", "X-API-KEY", "COOKIE", "REFERER", ":AUTHORITY"):
        assert telling not in text


def test_a_span_has_what_a_line_of_the_request_log_has() -> None:
    logged = request_log(RequestLogSpec())["format"]["json"]
    for name in ("ttft_ms", "mean_itl_ms", "client", "objective", "cached_input_tokens", "prompt_id"):
        assert TAGS[f"inference.{name}"] == logged[name]


def test_every_count_of_a_span_is_one_that_routes_report() -> None:
    config = gateway_config("g", GatewaySpec(port=80))
    reported = {cost["metadataKey"] for cost in config["spec"]["globalLLMRequestCosts"]}
    counts = {text.split(":")[1].rstrip(")%") for text in TAGS.values() if "llm_" in text}
    assert len(counts) == 3
    assert counts <= reported


@pytest.mark.parametrize(
    "wrong",
    ["http://otel:4317", "otel", "otel:0", "otel:70000", "Otel:4317", "user@otel:4317", "otel:4317/v1/traces", "-a:1"],
)
def test_what_is_no_host_and_port_is_refused(wrong: str) -> None:
    key = "gateway.traces.collector"
    refused_and_fixed(Wrong({key: wrong}, key, "is not HOST:PORT", fixed={key: COLLECTOR}))


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("localhost", "is Envoy's own pod"),
        ("127.0.0.1", "is Envoy's own pod"),
        ("0.0.0.0", "is no address of a host"),  # noqa: S104 - refused
        ("224.0.0.1", "is no address of a host"),
        ("999.1.1.1", "is neither a name nor an IPv4 address"),
        ("10.1", "is neither a name nor an IPv4 address"),
        (".".join(["otel-x"] * 50), "is not HOST:PORT"),
    ],
)
def test_a_place_without_a_collector_is_refused(host: str, what: str) -> None:
    key = "gateway.traces.collector"
    refused_and_fixed(Wrong({key: f"{host}:4317"}, key, what, fixed={key: "10.5.0.7:4317"}))


@pytest.mark.parametrize(("percent", "near"), [(0.014, "0.01"), (33.333, "33.33"), (99.999, "100")])
def test_a_share_that_would_be_rounded_is_refused(percent: float, near: str) -> None:
    key, there = "gateway.traces.sampled_percent", {"gateway.traces.collector": COLLECTOR}
    what = f"fix: write {near}"
    refused_and_fixed(Wrong({**there, key: percent}, key, what, fixed={key: float(near)}))


def test_each_step_of_a_share_is_taken() -> None:
    for step in range(1, 10_001):
        assert (
            tracing(TracesSpec(collector=COLLECTOR, sampled_percent=step / 100))["samplingFraction"]["numerator"]
            == step
        )


@pytest.mark.parametrize("percent", [0, 0.004, 101])
def test_a_share_that_samples_nothing_or_too_much_is_refused(percent: float) -> None:
    key = "gateway.traces.sampled_percent"
    refused_and_fixed(Wrong({"gateway.traces.collector": COLLECTOR, key: percent}, key, "", fixed={key: 1}))
