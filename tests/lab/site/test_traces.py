"""Traces of requests arrive at a collector, by OTLP over gRPC, and hold no prompt, answer or key."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from components.gateway.traces import TAGS
from floor.headers import PROMPT_ID_HEADER
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat
from tests.lab.site.test_full_engine import MODEL as SMALL_MODEL
from tests.lab.site.test_full_engine import too_many_prompts

pytestmark = pytest.mark.row("002.07", "003.20", "004.13")

MODEL = "qwen3-32b"
TOKENS = 5
PROMPT_ID = "customer_support.v2"
# Of half a core: what was measured of each.
SHARES = {"envoy": "300m", "ai-gateway-extproc": "200m"}


class Collector(TraceServiceServicer):
    """Keeps what it gets: OpenTelemetry's own messages, in the place of a collector program."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []

    def Export(  # noqa: N802 - OpenTelemetry's name
        self,
        request: ExportTraceServiceRequest,
        context: Any,  # noqa: ARG002 - gRPC's form
    ) -> ExportTraceServiceResponse:
        self.requests.append(request)
        return ExportTraceServiceResponse()

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def span(self, mark: str) -> Span | None:
        """That of the request with this user agent."""
        return next((span for span in self.spans() if attributes(span).get("user_agent") == mark), None)


def attributes(span: Span) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


@contextmanager
def collecting(address: str) -> Iterator[tuple[str, Collector]]:
    """HOST:PORT of a collector at this address."""
    server, collector = grpc.server(ThreadPoolExecutor(2)), Collector()
    add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port(f"{address}:0")
    server.start()
    try:
        yield f"{address}:{port}", collector
    finally:
        server.stop(None).wait()


def streamed(site: Site, mark: str, prompt: str, query: str) -> tuple[dict[str, int], str]:
    """What a stream reports at its end, and its text."""
    body = {**chat(MODEL, prompt, tokens=TOKENS, stream=True), "stream_options": {"include_usage": True}}
    url, headers = f"/chat/completions{query}", {"user-agent": mark, PROMPT_ID_HEADER: PROMPT_ID}
    with site.http() as client, client.stream("POST", url, json=body, headers=headers) as answer:
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
    return events[-1]["usage"], text


@pytest.mark.exhaustive
def test_a_sampled_request_is_a_span_without_prompt_answer_or_key(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    prompt, key_in_url = (f"{word}{secrets.token_hex(6)}" for word in ("prompt", "sk-url"))
    fine, refused, full, forced = (f"{word}{secrets.token_hex(6)}" for word in ("fine", "refused", "full", "forced"))
    with collecting(str(site.lab.network.uplink[1])) as (address, collector), edited_stack(site.lab, tmp_path) as stack:

        def traced(document: Document, percent: float = 100) -> None:
            document["gateway"] |= {"traces": {"collector": address, "sampled_percent": percent}, "cores": 0.5}

        def traced_never(document: Document) -> None:
            traced(document, percent=0.01)

        def alone() -> Replica | None:
            """The Envoy pod, once one that is drained for it is gone."""
            envoys = cluster.envoys()
            return envoys[0] if len(envoys) == 1 else None

        def admin(path: str) -> str:
            return cluster.envoy_admin(until(alone, what="one Envoy pod"), path)

        def samples(percent: float) -> None:
            setting = f'"random_sampling":{{"value":{percent:g}}}'
            listeners = "/config_dump?resource=dynamic_listeners"
            until(lambda: setting in "".join(admin(listeners).split()), what="Envoy's new listener")

        def flushes() -> int:
            return int(admin("/stats?filter=opentelemetry.timer_flushed").split()[-1])

        stack.up(traced)
        samples(100)
        assert SHARES.items() <= cluster.requested_cores(until(alone, what="one Envoy pod")).items()
        with cluster.pace(MODEL, prefill_overhead="2s"):
            usage, answered = streamed(site, fine, prompt, f"?key={key_in_url}")
        with site.http(key="sk-wrong") as client:
            client.post("/chat/completions", json=chat(MODEL), headers={"user-agent": refused})
        with cluster.pace(SMALL_MODEL, prefill_overhead="5s"), site.http() as client:
            body = {"model": SMALL_MODEL, "prompt": too_many_prompts(), "max_tokens": 1, "stream": True}
            client.post("/completions", json=body, headers={"user-agent": full}).raise_for_status()
        until(lambda: all(map(collector.span, (fine, refused, full))), what="the spans")
        span = collector.span(fine)
        assert span is not None
        shown = attributes(span)
        assert set(TAGS) - {"inference.stream_error"} <= set(shown)
        assert shown.get("inference.stream_error", "-") == "-"
        assert shown["gen_ai.request.model"] == MODEL
        assert shown["inference.client"] == site.front.client
        assert shown["inference.prompt_id"] == PROMPT_ID
        assert shown["inference.objective"] == f"interactive.{MODEL}"
        assert int(shown["gen_ai.usage.input_tokens"]) == usage["prompt_tokens"]
        assert int(shown["gen_ai.usage.output_tokens"]) == TOKENS
        assert 4 * float(shown["inference.mean_itl_ms"]) < float(shown["inference.ttft_ms"])
        assert float(shown["inference.ttft_ms"]) <= (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6

        def asked() -> str:
            """Whom Envoy asked for this request: it states that in spans below."""
            below = [child for child in collector.spans() if child.trace_id == span.trace_id and child != span]
            return " ".join(attributes(child).get("upstream_cluster", "") for child in below)

        parts = ("ai-gateway-extproc", f"picker/inference-models/{MODEL}", f"httproute/inference-models/{MODEL}")
        until(lambda: all(part in asked() for part in parts), what="spans of AI gateway, picker and replica")
        assert shown["http.url"] == "/v1/chat/completions"
        assert shown["inference.replica"].partition(":")[0] in {replica.ip for replica in cluster.replicas(MODEL)}
        engines = collector.span(full)
        assert engines is not None
        assert attributes(engines)["inference.stream_error"] == "503"
        other = collector.span(refused)
        assert other is not None
        assert attributes(other)["http.status_code"] == "401"
        everything = "".join(str(request) for request in collector.requests)
        for secret in (prompt, key_in_url, site.key, "sk-wrong", answered):
            assert secret not in everything

        stack.up(traced_never)
        samples(0.01)
        before, sent = len(collector.spans()), flushes()
        trace = {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01", "x-client-trace-id": "1"}
        with site.http() as client:
            for _ in range(20):
                client.post("/chat/completions", json=chat(MODEL), headers={"user-agent": forced, **trace})
        # Each worker of Envoy sends what it has each 5 s.
        until(lambda: flushes() > sent + 10, what="Envoy's spans")
        assert len([span for span in collector.spans()[before:] if span.kind == Span.SPAN_KIND_SERVER]) <= 1
