"""What Envoy pods have where a ledger runs: a log of the requests of known clients, and who ships it.

Envoy writes a line into a file of its pod once a request is over, so no request waits for it. A sidecar ships the lines
and forgets none before the ledger has it: without the ledger, or the sidecar, they wait in the file. What a killed
Envoy has not written yet, of the last second, is lost, and what comes while no more may wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.gateway.envoy_names import CHECKED, DECISIONS
from components.gateway.request_log import ASKED_MODEL, PROMPT_ID, STREAM_ERROR, TOKEN_COUNTS, counted, marked
from components.pod_security import CONTAINER_SECURITY
from floor.headers import CLIENT_HEADER, MODEL_HEADER, OBJECTIVE_HEADER
from services.ledger import variables

METERED_COUNTS = TOKEN_COUNTS | {"llm_reasoning_token": "ReasoningToken"}
"""As TOKEN_COUNTS, with what a bill shows beside."""

_VOLUME, _TOKEN, _TOKEN_FOLDER = "usage", "usage-token", "/etc/ledger"
_LOG = f"{variables.LOG_FOLDER}/{variables.LOG_FILE}"
_LOG_MOUNT = {"name": _VOLUME, "mountPath": variables.LOG_FOLDER}
# It writes into Envoy's folder, and Envoy's pod has no such settings for all of its containers.
_AS_ENVOY = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True, kw_only=True)
class Shipping:
    """Where Envoy pods' requests go."""

    image: str
    address: str
    """Of the ledger, as a URL."""
    secret: str
    """Secret of the Envoy pods' namespace with the token of those who write."""
    networks: bool = False
    """Whether gatekeepers name the network of each request, and keys are watched by these."""
    revisions: bool = False
    """Whether a gatekeeper sends requests to further revisions of models."""
    log_gib: int = 1
    """Room for the lines of a pod that wait."""


def usage_log(*, overflows: bool = False, networks: bool = False, revisions: bool = False) -> dict[str, Any]:
    """The access log of Envoy pods that a ledger is made of. It has nothing of a prompt, an answer or a key.

    overflows: whether another model than theirs may answer requests. networks, revisions: as of Shipping; never an
    address.
    """
    fields = {
        # Envoy's own: it takes no client's.
        "id": "%REQ(X-REQUEST-ID)%",
        "started": "%START_TIME(%s.%6f)%",
        "client": f"%REQ({CLIENT_HEADER})%",
        "objective": f"%REQ({OBJECTIVE_HEADER})%",
        "model": f"%REQ({MODEL_HEADER}):64%",
        **({"asked_model": marked(ASKED_MODEL)} if overflows else {}),
        "path": "%REQ_WITHOUT_QUERY(:PATH):256%",
        "status": "%RESPONSE_CODE%",
        "stream_error": marked(STREAM_ERROR),
        "details": "%RESPONSE_CODE_DETAILS%",
        "flags": "%RESPONSE_FLAGS%",
        "duration_ms": "%DURATION%",
        "ttft_ms": counted("token_latency_ttft"),
        "itl_ms": counted("token_latency_itl"),
        "input_tokens": counted("llm_input_token"),
        "cached_input_tokens": counted("llm_cached_input_token"),
        "output_tokens": counted("llm_output_token"),
        "reasoning_tokens": counted("llm_reasoning_token"),
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "replica": "%UPSTREAM_HOST%",
        "prompt_id": marked(PROMPT_ID),
        "trace_id": "%TRACE_ID%",
        **({"network": marked((DECISIONS, "network"))} if networks else {}),
        # Of the gatekeeper's own: the header may be a client's where no model has a further revision.
        **({"revision": marked((CHECKED, "revision"))} if revisions else {}),
    }
    return {
        "type": "Route",
        "format": {"type": "JSON", "json": fields},
        "sinks": [{"type": "File", "file": {"path": _LOG}}],
        # Strangers fill no disk.
        "matches": [f"'{CLIENT_HEADER}' in request.headers"],
    }


def with_shipping(proxy: Mapping[str, Any], shipping: Shipping, *, overflows: bool = False) -> dict[str, Any]:
    """The EnvoyProxy whose pods log their requests for the ledger and ship them. overflows: as of `usage_log`.

    The sidecar starts before Envoy and ends after it, in the five minutes that Envoy Gateway adds to the time for
    streams (1.9.1, internal/infrastructure/kubernetes/proxy).
    """
    volumes = [
        # The shipper stops the log below it: at its limit the kubelet ends the pod, at once.
        {"name": _VOLUME, "emptyDir": {"sizeLimit": f"{shipping.log_gib}Gi"}},
        # Envoy's pod has no group by which a sidecar could read it.
        {"name": _TOKEN, "secret": {"secretName": shipping.secret, "defaultMode": 0o444}},
    ]
    pods = {
        "initContainers": [sidecar(shipping)],
        "pod": {"volumes": volumes},
        "container": {"volumeMounts": [_LOG_MOUNT]},
    }
    log = usage_log(overflows=overflows, networks=shipping.networks, revisions=shipping.revisions)
    more = {
        "extraArgs": ["--file-flush-interval-msec", f"{1000 * variables.FLUSH_S:.0f}"],
        "provider": {"kubernetes": {"envoyDeployment": pods}},
        "telemetry": {"accessLog": {"settings": [log]}},
    }
    added: dict[str, Any] = _with(proxy, {"spec": more})
    return added


def sidecar(shipping: Shipping) -> dict[str, Any]:
    """The container that ships, as an init container that stays."""
    arguments = [
        "ship",
        f"--log={_LOG}",
        f"--ledger-url={shipping.address}",
        f"--token-file={_TOKEN_FOLDER}/{variables.WRITER_KEY}",
        f"--metrics-port={variables.SHIPPER_PORT}",
        f"--most-bytes={variables.most_log_bytes(shipping.log_gib)}",
    ]
    return {
        "name": variables.SHIPPER,
        "image": shipping.image,
        "restartPolicy": "Always",
        "args": arguments,
        "ports": [{"name": variables.SHIPPER, "containerPort": variables.SHIPPER_PORT, "protocol": "TCP"}],
        "livenessProbe": {
            "httpGet": {"path": "/metrics", "port": variables.SHIPPER_PORT},
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi", "ephemeral-storage": f"{shipping.log_gib}Gi"},
            "limits": {"memory": "256Mi"},
        },
        "securityContext": {**CONTAINER_SECURITY, **_AS_ENVOY},
        "volumeMounts": [_LOG_MOUNT, {"name": _TOKEN, "mountPath": _TOKEN_FOLDER, "readOnly": True}],
    }


def _with(base: Any, more: Any) -> Any:
    """Both: sections merged, lists one behind the other."""
    if isinstance(base, Mapping):
        return {**base, **{key: _with(base[key], value) if key in base else value for key, value in more.items()}}
    return [*base, *more]
