"""Traces: a span of each sampled request, made by Envoy once the request is over.

Its fields are those of the request log under OpenTelemetry's names. Neither prompt nor answer nor key is in it.
"""

from __future__ import annotations

from typing import Any

from components.gateway.request_log import PROMPT_ID, STREAM_ERROR, counted, marked
from components.specs.traces import STEPS_OF_ONE_PERCENT, TracesSpec
from floor.headers import CLIENT_HEADER, MODEL_HEADER, OBJECTIVE_HEADER

SERVICE_NAME = "inference-gateway"
"""Name of the service in every span."""

FOREIGN_HEADERS = ("traceparent", "tracestate")
"""By these a client would have each of its requests traced, whatever share is set."""

TAGS = {
    # Envoy's own has the query, and a key that came in it would stay in the trace.
    "http.url": "%PATH(NQ:PATH):256%",
    # https://opentelemetry.io/docs/specs/semconv/gen-ai/
    "gen_ai.request.model": f"%REQ({MODEL_HEADER}):64%",
    "gen_ai.usage.input_tokens": counted("llm_input_token"),
    "gen_ai.usage.output_tokens": counted("llm_output_token"),
    "inference.cached_input_tokens": counted("llm_cached_input_token"),
    "inference.ttft_ms": counted("token_latency_ttft"),
    "inference.mean_itl_ms": counted("token_latency_itl"),
    "inference.stream_error": marked(STREAM_ERROR),
    "inference.prompt_id": marked(PROMPT_ID),
    "inference.client": f"%REQ({CLIENT_HEADER})%",
    "inference.objective": f"%REQ({OBJECTIVE_HEADER})%",
    "inference.replica": "%UPSTREAM_HOST%",
}
"""Attributes of a span beside Envoy's own, with what Envoy writes into them."""


def tracing(spec: TracesSpec) -> dict[str, Any]:
    """The tracing of Envoy pods."""
    return {
        "provider": {
            "type": "OpenTelemetry",
            "host": spec.host,
            "port": spec.port,
            "serviceName": SERVICE_NAME,
        },
        "samplingFraction": {
            "numerator": round(spec.sampled_percent * STEPS_OF_ONE_PERCENT),
            "denominator": 100 * STEPS_OF_ONE_PERCENT,
        },
        # Envoy Gateway's own lets every client have itself traced by a header.
        "clientSamplingFraction": {"numerator": 0, "denominator": 100},
        "tags": TAGS,
    }
