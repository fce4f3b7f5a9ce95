"""Errors of the gateway itself in OpenAI's form, so that client libraries raise the exception that they document."""

from __future__ import annotations

from typing import Any

from components.headers import MODEL_HEADER

# What Envoy says of itself (key check, authorisation, direct answers, limits, picker): status, code, type, text.
# Successes are left alone: GET /v1/models is such an answer too. The AI gateway's own 400 is not valid JSON.
_ERRORS: tuple[tuple[int, str, str, str], ...] = (
    (400, "invalid_request", "invalid_request_error", "The body is not a JSON request that this path takes."),
    (401, "invalid_api_key", "invalid_request_error", "The API key is missing or unknown."),
    (403, "model_not_allowed", "permission_error", "This key may not call the model '%REQ(x-ai-eg-model)%'."),
    (404, "unknown_path", "invalid_request_error", "Nothing is served at this path."),
    (408, "request_timeout", "timeout_error", "The request was not received in time."),
    (413, "request_too_large", "invalid_request_error", "The request body is larger than this gateway takes."),
    (429, "rate_limit_exceeded", "rate_limit_error", "%LOCAL_REPLY_BODY%"),
    # Without this, a picker that is gone would be an empty message.
    (500, "server_error", "server_error", "A part of the gateway that this request needs does not answer. Try again."),
    (503, "model_unavailable", "server_error", "%LOCAL_REPLY_BODY%"),
    (504, "timeout", "timeout_error", "The model did not answer in time."),
)


def openai_errors(namespace: str, target: dict[str, str], *, listener: str, tls: bool) -> dict[str, Any]:
    """EnvoyPatchPolicy that gives the listener's own answers OpenAI's form.

    listener: `NAMESPACE/GATEWAY/LISTENER`, as Envoy Gateway names it. A listener with TLS keeps its HTTP filter in a
    filter chain of its own, one without in the default chain.
    """
    chain = "filter_chains/0" if tls else "default_filter_chain"
    no_model = {
        "filter": _all(_status("EQ", 404), _model_header({"string_match": {"exact": ""}})),
        "status_code": 400,
        "body_format_override": _body(
            "missing_required_parameter", "invalid_request_error", "The request names no model.", param="model"
        ),
    }
    unknown_model = {
        "filter": _all(_status("EQ", 404), _model_header({"present_match": True})),
        "body_format_override": _body(
            "model_not_found",
            "invalid_request_error",
            f"The model '%REQ({MODEL_HEADER})%' does not exist. GET /v1/models lists the models.",
            param="model",
        ),
    }
    # Envoy's own word for a model that has as many requests under way as it may; OpenAI answers 503 then, too.
    overloaded = {
        "filter": _all(_status("EQ", 503), {"response_flag_filter": {"flags": ["UO"]}}),
        "body_format_override": _body(
            "model_overloaded",
            "server_error",
            f"The model '%REQ({MODEL_HEADER})%' has as many requests as it can hold. Try again later.",
        ),
    }
    others = [
        {"filter": _status("EQ", status), "body_format_override": _body(code, kind, text)}
        for status, code, kind, text in _ERRORS
    ]
    rest = {
        "filter": _status("GE", 500),
        "body_format_override": _body("server_error", "server_error", "%LOCAL_REPLY_BODY%"),
    }
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyPatchPolicy",
        "metadata": {"name": "openai-errors", "namespace": namespace},
        "spec": {
            "targetRef": target,
            "type": "JSONPatch",
            "jsonPatches": [
                {
                    "type": "type.googleapis.com/envoy.config.listener.v3.Listener",
                    "name": listener,
                    "operation": {
                        "op": "add",
                        "path": f"/{chain}/filters/0/typed_config/local_reply_config",
                        "value": {"mappers": [no_model, unknown_model, overloaded, *others, rest]},
                    },
                }
            ],
        },
    }


def _all(*filters: dict[str, Any]) -> dict[str, Any]:
    return {"and_filter": {"filters": list(filters)}}


def _model_header(match: dict[str, Any]) -> dict[str, Any]:
    return {"header_filter": {"header": {"name": MODEL_HEADER, **match}}}


def _status(comparison: str, code: int) -> dict[str, Any]:
    value = {"default_value": code, "runtime_key": f"local_reply_{comparison.lower()}_{code}"}
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


def _body(code: str, kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {
        "content_type": "application/json",
        "json_format": {"error": {"message": message, "type": kind, "param": param, "code": code}},
    }
