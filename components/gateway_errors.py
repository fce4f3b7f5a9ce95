"""Errors of the gateway itself in OpenAI's form, so that client libraries raise the exception that they document."""

from __future__ import annotations

from typing import Any

from components.envoy_names import http_manager
from components.headers import MODEL_HEADER, REFUSAL_HEADER
from components.metadata import PROTECTED

# What Envoy says of itself (key check, authorisation, direct answers, limits, picker): status, code, type, text.
# Successes are left alone: GET /v1/models is such an answer too. The AI gateway's own 400 is not valid JSON.
_ERRORS: tuple[tuple[int, str, str, str], ...] = (
    (
        400,
        "invalid_request",
        "invalid_request_error",
        "This is not HTTP that the gateway takes, or its body is not a JSON request that this path takes.",
    ),
    (401, "invalid_api_key", "invalid_request_error", "The API key is missing or unknown."),
    (403, "model_not_allowed", "permission_error", "This key may not call the model '%REQ(x-ai-eg-model)%'."),
    (404, "unknown_path", "invalid_request_error", "Nothing is served at this path."),
    (408, "request_timeout", "timeout_error", "The request was not received in time."),
    (413, "request_too_large", "invalid_request_error", "The request body is larger than this gateway takes."),
    (431, "headers_too_large", "invalid_request_error", "The request has more headers than this gateway takes."),
    (429, "rate_limit_exceeded", "rate_limit_error", "%LOCAL_REPLY_BODY%"),
    # Without this, a picker that is gone would be an empty message.
    (500, "server_error", "server_error", "A part of the gateway that this request needs does not answer. Try again."),
    (503, "model_unavailable", "server_error", "%LOCAL_REPLY_BODY%"),
    (504, "timeout", "timeout_error", "The model did not answer in time."),
)
# Statuses by the codes of all errors: the ones above, the mappers' below, and the front door's own.
ERROR_STATUSES = {
    **{code: status for status, code, *_ in _ERRORS},
    "invalid_value": 400,
    "method_not_allowed": 405,
    "missing_required_parameter": 400,
    "model_not_found": 404,
    "model_overloaded": 503,
    "trailers_not_supported": 400,
    "upgrade_not_supported": 400,
}


def openai_errors(namespace: str, target: dict[str, str], *, listener: str, tls: bool) -> dict[str, Any]:
    """EnvoyPatchPolicy that gives the listener's own answers OpenAI's form.

    listener: `NAMESPACE/GATEWAY/LISTENER`, as Envoy Gateway names it.
    """
    # The front door's own words for its own refusals.
    refused = {
        "filter": _header(REFUSAL_HEADER, {"present_match": True}),
        "body_format_override": _body(f"%REQ({REFUSAL_HEADER})%", "invalid_request_error", "%LOCAL_REPLY_BODY%"),
    }
    no_model = {
        "filter": _all(_status("EQ", 404), _header(MODEL_HEADER, {"string_match": {"exact": ""}})),
        "status_code": 400,
        "body_format_override": _body(
            "missing_required_parameter", "invalid_request_error", "The request names no model.", param="model"
        ),
    }
    unknown_model = {
        "filter": _all(_status("EQ", 404), _header(MODEL_HEADER, {"present_match": True})),
        "body_format_override": _body(
            "model_not_found",
            "invalid_request_error",
            f"The model '%REQ({MODEL_HEADER})%' does not exist. GET /v1/models lists the models.",
            param="model",
        ),
    }
    # The AI gateway's header cannot hold such a name, and Envoy says 500.
    unspeakable_model = {
        "filter": _all(_status("EQ", 500), _details("contains_invalid_character")),
        "status_code": 400,
        "body_format_override": _body(
            "invalid_value", "invalid_request_error", "The model's name holds a control character.", param="model"
        ),
    }
    # A path for which the AI gateway has no way to speak to the model, and says 500.
    not_served = {
        "filter": _all(_status("EQ", 500), _details("unsupported_API_schema")),
        "status_code": 404,
        "body_format_override": _body(
            "unknown_path", "invalid_request_error", f"The model '%REQ({MODEL_HEADER})%' is not served at this path."
        ),
    }
    # CONNECT and upgrades such as WebSocket end before a model is known; a permission is denied after it.
    upgrade = {
        "filter": _all(_status("EQ", 403), _header(MODEL_HEADER, {"present_match": True, "invert_match": True})),
        "status_code": 400,
        "body_format_override": _body(
            "upgrade_not_supported", "invalid_request_error", "CONNECT and protocol upgrades are not supported."
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
    rest = [
        {"filter": _status("GE", status), "body_format_override": _body(code, kind, "%LOCAL_REPLY_BODY%")}
        for status, code, kind in (
            (500, "server_error", "server_error"),
            (400, "invalid_request", "invalid_request_error"),
        )
    ]
    mappers = [refused, no_model, unknown_model, unspeakable_model, not_served, upgrade, overloaded, *others, *rest]
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "EnvoyPatchPolicy",
        "metadata": {"name": "openai-errors", "namespace": namespace, "labels": PROTECTED},
        "spec": {
            "targetRef": target,
            "type": "JSONPatch",
            "jsonPatches": [
                {
                    "type": "type.googleapis.com/envoy.config.listener.v3.Listener",
                    "name": listener,
                    "operation": {
                        "op": "add",
                        "path": f"/{http_manager(tls=tls)}/local_reply_config",
                        "value": {"mappers": mappers},
                    },
                }
            ],
        },
    }


def _all(*filters: dict[str, Any]) -> dict[str, Any]:
    return {"and_filter": {"filters": list(filters)}}


def _header(name: str, match: dict[str, Any]) -> dict[str, Any]:
    return {"header_filter": {"header": {"name": name, **match}}}


def _details(part: str) -> dict[str, Any]:
    """Envoy's own words for why it replied hold this part."""
    expression = f"response.code_details.contains('{part}')"
    return {
        "extension_filter": {
            "name": "envoy.access_loggers.extension_filters.cel",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                "expression": expression,
            },
        }
    }


def _status(comparison: str, code: int) -> dict[str, Any]:
    value = {"default_value": code, "runtime_key": f"local_reply_{comparison.lower()}_{code}"}
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


def _body(code: str, kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {
        "content_type": "application/json",
        "json_format": {"error": {"message": message, "type": kind, "param": param, "code": code}},
    }
