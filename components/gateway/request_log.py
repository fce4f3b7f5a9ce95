"""The request log: one line of JSON a request, from which a slow one is traced to client, model, replica and prompt.

Envoy writes it once the request is over, so no request waits for it. Neither prompt nor answer nor key is in it.
"""

from __future__ import annotations

from typing import Any

from components.gateway.envoy_names import CHECKED
from components.specs.request_log import RequestLogSpec
from floor.headers import CLIENT_HEADER, MODEL_HEADER, OBJECTIVE_HEADER

# Where the AI gateway leaves what it counted and timed of a request (AI gateway internal/extproc).
COUNTED = "io.envoy.ai_gateway"

TOKEN_COUNTS = {
    "llm_input_token": "InputToken",
    "llm_cached_input_token": "CachedInputToken",
    "llm_output_token": "OutputToken",
    "llm_total_token": "TotalToken",
}
"""Metadata key -> the AI gateway's kind of count."""

STREAM_ERROR = ("inference-platform.answer", "stream_error")
"""Metadata that the front door's script sets: the status in an error that a stream of HTTP 200 begins with."""

PROMPT_ID = ("inference-platform.client", "prompt_id")
"""Metadata that the front door's script sets: the client's own id of its prompt, where it has the form of one."""

ASKED_MODEL = (CHECKED, "asked")
"""Metadata that the gatekeeper sets: the model that was asked for, where another one answers."""

METERED = "inference-platform.metered"
"""Metadata in which a script counts a stream for itself, by the keys of TOKEN_COUNTS, where a ledger runs."""

# Ids are random UUIDs: of their first two digits, each of the 256 values is as likely.
_BUCKETS = 256


def request_log(spec: RequestLogSpec, *, overflows: bool = False) -> dict[str, Any]:
    """The access log of Envoy pods. overflows: whether another model than theirs may answer requests."""
    fields = {
        "start_time": "%START_TIME%",
        "method": "%REQ(:METHOD)%",
        # Without its query: a key that came in it would stay in the log.
        "path": "%REQ_WITHOUT_QUERY(:PATH):256%",
        "protocol": "%PROTOCOL%",
        "response_code": "%RESPONSE_CODE%",
        # An engine's refusal by an event: the answer is HTTP 200, and counts no tokens.
        "stream_error": marked(STREAM_ERROR),
        "response_code_details": "%RESPONSE_CODE_DETAILS%",
        "response_flags": "%RESPONSE_FLAGS%",
        "connection_termination_details": "%CONNECTION_TERMINATION_DETAILS%",
        "upstream_transport_failure_reason": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
        "bytes_received": "%BYTES_RECEIVED%",
        "bytes_sent": "%BYTES_SENT%",
        "duration": "%DURATION%",
        "first_byte_ms": "%RESPONSE_DURATION%",
        "ttft_ms": counted("token_latency_ttft"),
        "mean_itl_ms": counted("token_latency_itl"),
        "input_tokens": counted("llm_input_token"),
        "cached_input_tokens": counted("llm_cached_input_token"),
        "output_tokens": counted("llm_output_token"),
        "x-request-id": "%REQ(X-REQUEST-ID)%",
        "prompt_id": marked(PROMPT_ID),
        "client": f"%REQ({CLIENT_HEADER})%",
        "objective": f"%REQ({OBJECTIVE_HEADER})%",
        "model": f"%REQ({MODEL_HEADER}):64%",
        **({"asked_model": marked(ASKED_MODEL)} if overflows else {}),
        "user-agent": "%REQ(USER-AGENT):256%",
        "downstream_remote_address": "%DOWNSTREAM_REMOTE_ADDRESS%",
        "upstream_cluster": "%UPSTREAM_CLUSTER%",
        "upstream_host": "%UPSTREAM_HOST%",
        "route_name": "%ROUTE_NAME%",
    }
    setting: dict[str, Any] = {
        "format": {"type": "JSON", "json": fields},
        "sinks": [{"type": "File", "file": {"path": "/dev/stdout"}}],
    }
    if spec.sampled_percent < 100:
        # Of several, all would have to be true (Envoy Gateway 1.9.1, internal/xds/translator/accesslog.go).
        setting["matches"] = [_kept(spec)]
    return setting


def _kept(spec: RequestLogSpec) -> str:
    """A CEL expression that is true for each request that is written; what a request lacks makes no part of it true."""
    counted = f"metadata.filter_metadata['{COUNTED}']"
    kept = [
        "response.code >= 400",
        # Ended early: by the client, a timeout, or an engine that went away.
        "response.flags != 0",
        f"metadata.filter_metadata['{STREAM_ERROR[0]}']['{STREAM_ERROR[1]}'] != ''",
        # The whole time of an answer that is not streamed: the AI gateway times streams alone (internal/extproc).
        f"response.backend_latency > duration('{spec.slow_ttft_ms}ms')",
        f"{counted}['token_latency_ttft'] > {float(spec.slow_ttft_ms)}",
        f"{counted}['token_latency_itl'] > {float(spec.slow_itl_ms)}",
    ]
    if buckets := spec.sampled_percent * _BUCKETS // 100:
        # Two digits sort as text as they do as numbers.
        kept.append(f"request.id < '{buckets:02x}'")
    return " || ".join(kept)


def counted(key: str) -> str:
    return marked((COUNTED, key))


def marked(place: tuple[str, str]) -> str:
    """What a filter has left at this place: its name for itself, and a key."""
    return f"%DYNAMIC_METADATA({':'.join(place)})%"
