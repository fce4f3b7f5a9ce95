"""Errors of the gateway itself in OpenAI's form, so that client libraries raise the exception that they document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.gateway.envoy_names import http_manager
from components.gateway.envoy_patches import LISTENER, patch, patch_policy
from floor.headers import MODEL_HEADER, REFUSAL_HEADER, RETRY_HEADER, START_HEADER
from floor.metadata import PROTECTED

_CLIENT, _SERVER = "invalid_request_error", "server_error"
# The name that the client gave. Some are as long as a body.
_NAMED = f"%REQ({MODEL_HEADER}):256%"


def _all(*filters: dict[str, Any]) -> dict[str, Any]:
    return {"and_filter": {"filters": list(filters)}}


def _any(*filters: dict[str, Any]) -> dict[str, Any]:
    return {"or_filter": {"filters": list(filters)}}


def _header(name: str, match: dict[str, Any]) -> dict[str, Any]:
    return {"header_filter": {"header": {"name": name, **match}}}


def _details(*parts: str) -> dict[str, Any]:
    """Envoy's own words for why it replied hold one of these parts."""
    return _cel(" || ".join(f"response.code_details.contains('{part}')" for part in parts))


def _cel(expression: str) -> dict[str, Any]:
    return {
        "extension_filter": {
            "name": "envoy.access_loggers.extension_filters.cel",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
                "expression": expression,
            },
        }
    }


def _flag(flag: str) -> dict[str, Any]:
    """Envoy's flag for why it replied."""
    return {"response_flag_filter": {"flags": [flag]}}


def _status(comparison: str, code: int) -> dict[str, Any]:
    value = {"default_value": code, "runtime_key": f"local_reply_{comparison.lower()}_{code}"}
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


def _body(code: str, kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {
        "content_type": "application/json",
        "json_format": {"error": {"message": message, "type": kind, "param": param, "code": code}},
    }


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What a client gets in the place of an answer of Envoy's own."""

    status: int
    code: str
    kind: str
    message: str
    param: str | None = None
    instead_of: dict[str, Any] | None = None
    """Filter of Envoy's access log; without one, every answer of the status."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer beside its own."""

    def mapper(self) -> dict[str, Any]:
        body: dict[str, Any] = {"body_format_override": _body(self.code, self.kind, self.message, self.param)}
        if self.headers:
            body["headers_to_add"] = [
                {"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
                for key, value in self.headers.items()
            ]
        if self.instead_of is None:
            return {"filter": _status("EQ", self.status), **body}
        return {"filter": self.instead_of, "status_code": self.status, **body}


# The first that fits is taken. Successes are left alone: GET /v1/models is such an answer too.
_ANSWERS = (
    _Answer(
        status=400,
        code="missing_required_parameter",
        kind=_CLIENT,
        message="The request names no model.",
        param="model",
        instead_of=_all(_status("EQ", 404), _header(MODEL_HEADER, {"string_match": {"exact": ""}})),
    ),
    _Answer(
        status=404,
        code="model_not_found",
        kind=_CLIENT,
        message=f"The model '{_NAMED}' does not exist. GET /v1/models lists the models.",
        param="model",
        instead_of=_all(_status("EQ", 404), _header(MODEL_HEADER, {"present_match": True})),
    ),
    # The AI gateway's header cannot hold such a name, and Envoy answers 500.
    _Answer(
        status=400,
        code="invalid_value",
        kind=_CLIENT,
        message="The model's name holds a control character.",
        param="model",
        instead_of=_all(_status("EQ", 500), _details("contains_invalid_character")),
    ),
    # The same header, with the client's own, is larger than Envoy takes.
    _Answer(
        status=400,
        code="invalid_value",
        kind=_CLIENT,
        message="The model's name is too long for this gateway, or the request has too many headers beside it.",
        param="model",
        instead_of=_all(_status("EQ", 500), _details("header_mutation_result_exceeds_limit")),
    ),
    # A path for which the AI gateway has no way to speak to the model, and answers 500.
    _Answer(
        status=404,
        code="unknown_path",
        kind=_CLIENT,
        message=f"The model '{_NAMED}' is not served at this path.",
        instead_of=_all(_status("EQ", 500), _details("unsupported_API_schema")),
    ),
    # A picker, or the AI gateway's processor, that is gone or does not answer. Another try may find another one; Envoy
    # answers 500 and, where it waited in vain, 504. Numbers are gRPC's: cancelled, deadline exceeded, unavailable.
    _Answer(
        status=503,
        code="gateway_unavailable",
        kind=_SERVER,
        message="A part of the gateway that this request needs does not answer. Try again.",
        instead_of=_all(
            _status("GE", 500),
            _details(
                *(f"ext_proc_error_gRPC_error_{number}{{" for number in (1, 4, 14)), "per-message_timeout_exceeded"
            ),
        ),
    ),
    # Upgrades such as WebSocket end before a model is known; a permission is denied after it. CONNECT has no route, so
    # no key of it is checked.
    _Answer(
        status=400,
        code="upgrade_not_supported",
        kind=_CLIENT,
        message="CONNECT and protocol upgrades are not supported.",
        instead_of=_any(
            _header(":method", {"string_match": {"exact": "CONNECT"}}),
            _all(_status("EQ", 403), _header(MODEL_HEADER, {"present_match": True, "invert_match": True})),
        ),
    ),
    # A model that has as many requests under way as it may; OpenAI answers 503 then, too.
    _Answer(
        status=503,
        code="model_overloaded",
        kind=_SERVER,
        message=f"The model '{_NAMED}' has as many requests as it can hold. Try again later.",
        instead_of=_all(_status("EQ", 503), {"response_flag_filter": {"flags": ["UO"]}}),
    ),
    # The AI gateway's own 400 is not valid JSON.
    _Answer(
        status=400,
        code="invalid_request",
        kind=_CLIENT,
        message="This is not HTTP that the gateway takes, or its body is not a JSON request that this path takes.",
    ),
    _Answer(status=401, code="invalid_api_key", kind=_CLIENT, message="The API key is missing or unknown."),
    _Answer(
        status=403,
        code="model_not_allowed",
        kind="permission_error",
        message=f"This key may not call the model '{_NAMED}'.",
    ),
    _Answer(status=404, code="unknown_path", kind=_CLIENT, message="Nothing is served at this path."),
    _Answer(status=408, code="request_timeout", kind="timeout_error", message="The request was not received in time."),
    _Answer(
        status=413,
        code="request_too_large",
        kind=_CLIENT,
        message="The request body is larger than this gateway takes.",
    ),
    _Answer(
        status=431,
        code="headers_too_large",
        kind=_CLIENT,
        message="The request has more headers than this gateway takes.",
    ),
    _Answer(status=429, code="rate_limit_exceeded", kind="rate_limit_error", message="%LOCAL_REPLY_BODY%"),
    # Without this, a part of the gateway that fails would be an empty message.
    _Answer(
        status=500,
        code="server_error",
        kind=_SERVER,
        message="A part of the gateway failed with this request.",
    ),
    _Answer(status=503, code="model_unavailable", kind=_SERVER, message="%LOCAL_REPLY_BODY%"),
    _Answer(status=504, code="timeout", kind="timeout_error", message="The model did not answer in time."),
)
RESET = "x-ratelimit-reset"
"""Seconds until the counter that refused a request begins again, by Envoy's rate limit filter. Answers of Envoy's own
have it before scripts do, which give it another name (components/tenants/limit_scripts.py)."""
# A client's library gives up on a wait above a minute or so; then its user should know, and not its retries.
_LONG_WAIT_S = 120
# Of a site that limits tenants, and before all others.
_LIMIT_ANSWERS = (
    _Answer(
        status=429,
        code="insufficient_quota",
        kind="insufficient_quota",
        message=f"This tenant has used what its plan allows. It may go on in %RESP({RESET})% seconds.",
        instead_of=_all(_flag("RL"), _cel(f"int(response.headers['{RESET}']) > {_LONG_WAIT_S}")),
        # OpenAI's and Anthropic's libraries obey it, and so do not try again for what cannot succeed.
        headers={"retry-after": f"%RESP({RESET})%", "x-should-retry": "false"},
    ),
    _Answer(
        status=429,
        code="rate_limit_exceeded",
        kind="rate_limit_error",
        message=f"This tenant has reached a limit of its plan. Try again in %RESP({RESET})% seconds.",
        instead_of=_flag("RL"),
        headers={"retry-after": f"%RESP({RESET})%"},
    ),
    _Answer(
        status=503,
        code="limits_unavailable",
        kind=_SERVER,
        message="What counts this tenant's use does not answer. Try again.",
        instead_of=_flag("RLSE"),
        headers={"retry-after": "5"},
    ),
)


def _of_gatekeeper(status: int, code: str, kind: str) -> _Answer:
    """It writes the message; Envoy has the code in its own words for why it replied (services/gatekeeper/hook.go)."""
    instead_of = _details(f"gatekeeper_{code}")
    return _Answer(status=status, code=code, kind=kind, message="%LOCAL_REPLY_BODY%", instead_of=instead_of)


# Of a site with a gatekeeper: where none answers, and what it refuses.
_GATEKEEPER_ANSWERS = (
    _Answer(
        status=503,
        code="gateway_unavailable",
        kind=_SERVER,
        message="A part of the gateway that this request needs does not answer. Try again.",
        instead_of=_any(
            _details("ext_authz_error", "gatekeeper_gateway_unavailable"),
            _header(REFUSAL_HEADER, {"string_match": {"exact": "gateway_unavailable"}}),
        ),
    ),
    _of_gatekeeper(400, "invalid_request", _CLIENT),
    _of_gatekeeper(400, "context_length_exceeded", _CLIENT),
    _of_gatekeeper(403, "not_isolated", "permission_error"),
    _of_gatekeeper(429, "rate_limit_exceeded", "rate_limit_error"),
    _of_gatekeeper(503, "limits_unavailable", _SERVER),
)
# Of a site with limits of a month.
_SPENT = _of_gatekeeper(429, "insufficient_quota", "insufficient_quota")
# Of a site with a model that admits by pages.
_PAGED = _of_gatekeeper(503, "model_overloaded", _SERVER)
# Of a site with a model that may have no replica. The picker refuses it at once, by an answer of its own without any
# flag of Envoy's. The model's route adds what the model needs, so the listener changes with no name of a model.
_STARTING = _Answer(
    status=503,
    code="model_starting",
    kind=_SERVER,
    message=f"The model '{_NAMED}' has no replica now. This request starts one, which takes about "
    f"%RESP({START_HEADER})% seconds. Try again then.",
    instead_of=_all(_status("EQ", 503), _cel(f"response.flags == 0 && '{START_HEADER}' in response.headers")),
    headers={"retry-after": f"%RESP({RETRY_HEADER})%"},
)
# Of a site with a directory of keys, before a model is known. The gatekeeper's only other refusal there is 401.
_SUSPENDED = _Answer(
    status=403,
    code="key_suspended",
    kind="permission_error",
    message="%LOCAL_REPLY_BODY%",
    instead_of=_all(_status("EQ", 403), _details("ext_authz_denied")),
)
# Statuses by the codes of all errors: the ones above, and the front door's own.
ERROR_STATUSES = {answer.code: answer.status for answer in _ANSWERS} | {
    "method_not_allowed": 405,
    "trailers_not_supported": 400,
}
# The same, with those of a site with a gatekeeper.
DECIDED_STATUSES = ERROR_STATUSES | {answer.code: answer.status for answer in _GATEKEEPER_ANSWERS}
LIMIT_STATUSES = {(answer.status, answer.code) for answer in _LIMIT_ANSWERS}


def openai_errors(
    namespace: str,
    target: dict[str, str],
    *,
    listener: str,
    tls: bool,
    limited: bool = False,
    decided: bool = False,
    budgeted: bool = False,
    paged: bool = False,
    suspends: bool = False,
    starts: bool = False,
) -> dict[str, Any]:
    """EnvoyPatchPolicy that gives the listener's own answers OpenAI's form.

    listener: `NAMESPACE/GATEWAY/LISTENER`, as Envoy Gateway names it. limited: whether any tenant has a limit.
    decided: whether a gatekeeper runs. budgeted: whether it refuses tenants that have spent a month's limit. paged:
    whether it refuses requests that a model has no pages for. suspends: whether it refuses keys that are suspended.
    starts: whether a model may have no replica.
    """
    # The front door names the code of its own refusals, and writes the message.
    refused = {
        "filter": _header(REFUSAL_HEADER, {"present_match": True}),
        "body_format_override": _body(f"%REQ({REFUSAL_HEADER})%", _CLIENT, "%LOCAL_REPLY_BODY%"),
    }
    rest = [
        {"filter": _status("GE", status), "body_format_override": _body(code, kind, "%LOCAL_REPLY_BODY%")}
        for status, code, kind in ((500, "server_error", _SERVER), (400, "invalid_request", _CLIENT))
    ]
    limits = [answer.mapper() for answer in _LIMIT_ANSWERS] if limited else []
    asked: list[_Answer] = []
    if decided:
        asked = [*([_SUSPENDED] if suspends else []), *_GATEKEEPER_ANSWERS, *([_SPENT] if budgeted else [])]
        asked += [_PAGED] if paged else []
    mapped = [answer.mapper() for answer in _ANSWERS]
    starting = [_STARTING.mapper()] if starts else []
    mappers = [*(answer.mapper() for answer in asked), *limits, refused, *starting, *mapped, *rest]
    answers = patch(
        LISTENER, listener, op="add", path=f"/{http_manager(tls=tls)}/local_reply_config", value={"mappers": mappers}
    )
    return patch_policy("openai-errors", namespace, target, [answers], labels=PROTECTED)
