"""Which requests the gateway logs, and with what."""

from __future__ import annotations

import json

import pytest

from components.gateway.gateway import gateway_config
from components.gateway.request_log import STREAM_ERROR, request_log
from components.specs.gateway import GatewaySpec
from components.specs.request_log import RequestLogSpec
from floor.headers import CLIENT_HEADER

pytestmark = pytest.mark.row("003.20")


def test_everything_is_logged_by_default() -> None:
    assert "matches" not in request_log(RequestLogSpec())


def condition_of(**settings: int) -> list[str]:
    """The parts of the one condition, of which one has to be true."""
    (condition,) = request_log(RequestLogSpec(**settings))["matches"]
    return str(condition).split(" || ")


@pytest.mark.parametrize(("percent", "first"), [(1, "02"), (50, "80"), (99, "fd")])
def test_of_ids_the_set_share_is_logged(percent: int, first: str) -> None:
    """Ids begin with two random hexadecimal digits; CEL compares them as text."""
    *_, sample = condition_of(sampled_percent=percent)
    assert sample == f"request.id < '{first}'"
    logged = sum(f"{number:02x}-4a7b" < first for number in range(256))
    assert logged / 256 == pytest.approx(percent / 100, abs=1 / 256)


def test_none_of_the_rest_is_logged_at_0() -> None:
    assert not any("request.id" in part for part in condition_of(sampled_percent=0))


def test_what_is_slow_is_for_the_site_to_say() -> None:
    parts = condition_of(sampled_percent=0, slow_ttft_ms=1500, slow_itl_ms=70)
    assert [text.partition("] > ")[2] for text in parts if "token_latency" in text] == ["1500.0", "70.0"]
    assert "response.backend_latency > duration('1500ms')" in parts


def test_every_count_that_is_logged_is_one_that_routes_report() -> None:
    config = gateway_config("g", GatewaySpec(port=80))
    reported = {cost["metadataKey"] for cost in config["spec"]["globalLLMRequestCosts"]}
    fields = request_log(RequestLogSpec())["format"]["json"]
    counts = [text for text in fields.values() if "llm_" in text]
    assert len(counts) == 3
    assert {text.split(":")[1].rstrip(")%") for text in counts} <= reported


def test_latencies_and_the_client_are_under_their_own_names() -> None:
    fields = request_log(RequestLogSpec())["format"]["json"]
    assert fields["ttft_ms"] == "%DYNAMIC_METADATA(io.envoy.ai_gateway:token_latency_ttft)%"
    assert fields["mean_itl_ms"] == "%DYNAMIC_METADATA(io.envoy.ai_gateway:token_latency_itl)%"
    assert fields["client"] == f"%REQ({CLIENT_HEADER})%"


def test_the_access_log_asks_for_no_query_and_no_credential() -> None:
    """A field that could hold a key stays in the log."""
    text = json.dumps(request_log(RequestLogSpec())).upper()
    for telling in ("REQ(:PATH)", "ORIGINAL-PATH", "AUTHORIZATION", "X-API-KEY", "COOKIE", "REFERER", ":AUTHORITY"):
        assert telling not in text


def test_a_refusal_within_a_stream_is_logged_whatever_share_is() -> None:
    """It is neither an error by its status nor slow."""
    filter_, key = STREAM_ERROR
    assert f"metadata.filter_metadata['{filter_}']['{key}'] != ''" in condition_of(sampled_percent=0)
