"""The scripts of the front door: Lua in which no name of a site is, so that the listener never changes with one."""

from __future__ import annotations

from components.gateway.envoy_names import CHECKED, DECISIONS
from components.gateway.gateway_errors import DECIDED_STATUSES, ERROR_STATUSES
from components.gateway.request_log import COUNTED, METERED, PROMPT_ID, STREAM_ERROR
from floor.headers import (
    CLIENT_HEADER,
    INNER_HEADERS,
    MODEL_HEADER,
    OBJECTIVE_HEADER,
    PROMPT_ID_HEADER,
    REFUSAL_HEADER,
    REVISION_HEADER,
    REWRITE_HEADER,
    SERVED_HEADER,
)
from manifests.render import render_text

REQUEST_METADATA = "inference-platform.request"
# A full model has room again within seconds. OpenAI's clients honour a Retry-After of up to a minute.
_RETRY_AFTER_S = 5
# A UUID has 36; a name with its version has fewer.
_PROMPT_ID_BYTES = 64
RANK_PATH = "/cohere/v2/rerank"
_MESSAGES_PATH, _CHAT_PATH = "/anthropic/v1/messages", "/v1/chat/completions"
# The paths out of which the AI gateway v1.0.0 reads a model (cmd/extproc/mainlib/main.go).
MODEL_PATHS = (
    _MESSAGES_PATH,
    RANK_PATH,
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    _CHAT_PATH,
    "/v1/completions",
    "/v1/embeddings",
    "/v1/images/generations",
    "/v1/responses",
)


def script(
    *, decided: bool = False, metered: bool = False, overflows: bool = False, ranks_charged: bool = False
) -> str:
    """Lua that no name of a site is in: tenants' lists come as data of the routes, so the listener never changes.

    decided: a gatekeeper has decided about the caller. metered: a ledger gets what streams used. overflows: answers
    name the model that they are of, where the gatekeeper has sent the request to another one. ranks_charged: tokens
    count, and a model ranks documents.
    """
    return render_text(
        "front-door.lua.j2",
        metered=METERED if metered else None,
        served_header=SERVED_HEADER if overflows else None,
        rank_path=RANK_PATH if ranks_charged else None,
        prompt=(DECISIONS, "prompt"),
        checked=CHECKED,
        counted=COUNTED,
        decisions=DECISIONS if decided else None,
        client_header=CLIENT_HEADER,
        refusal_header=REFUSAL_HEADER,
        inner_headers=INNER_HEADERS,
        model_paths=MODEL_PATHS,
        retry_after_s=_RETRY_AFTER_S,
        statuses=sorted((DECIDED_STATUSES if decided else ERROR_STATUSES).items()),
        request_metadata=REQUEST_METADATA,
        stream_error=STREAM_ERROR,
        prompt_id=PROMPT_ID,
        prompt_id_bytes=_PROMPT_ID_BYTES,
        prompt_id_header=PROMPT_ID_HEADER,
    )


def model_names_script(*, decided: bool = False, revisions: bool = False, adapters: bool = False) -> str:
    """Lua that gives a request for an alias the model's own name; the aliases come as data of the routes.

    decided: it holds the request against the gatekeeper's decision, too; the data has every model then. revisions: it
    sends a request to the revision that the gatekeeper chose. adapters: it gives a request for an adapter the model's
    name too, in the header alone: the engine reads the adapter's in the body.
    """
    return render_text(
        "model-names.lua.j2",
        decisions=DECISIONS if decided else None,
        checked=CHECKED,
        refusal_header=REFUSAL_HEADER,
        messages_path=_MESSAGES_PATH,
        chat_path=_CHAT_PATH,
        model_header=MODEL_HEADER,
        objective_header=OBJECTIVE_HEADER,
        rewrite_header=REWRITE_HEADER,
        revisions=revisions,
        adapters=adapters,
        client_header=CLIENT_HEADER,
        revision_header=REVISION_HEADER,
    )
