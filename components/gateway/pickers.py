"""How Envoy asks the endpoint picker of a pool: the connection to it, and the filter that waits for its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.gateway.connections import Connection, asked, cluster
from components.gateway.envoy_names import CLIENT_POLICY, model_route, picker_filter
from components.gateway.envoy_patches import (
    BEFORE_ROUTING,
    CLUSTER,
    LISTENER,
    ROUTES,
    patch,
    patch_policy,
)
from components.specs.model_server import ZeroPlan
from floor.headers import CLIENT_HEADER, RETRY_HEADER, START_HEADER

_TYPE = "type.googleapis.com/envoy.extensions.filters.http"
_FILTER_CONFIG = "type.googleapis.com/envoy.config.route.v3.FilterConfig"
# The AI gateway puts its processor before the first filter whose name it knows, so these must not be like those.
_BY_TENANT, _BY_CLIENT = "inference-platform.shares-by-tenant", "inference-platform.client"
# Of several values the picker v1.5.0 takes the last one (pkg/epp/handlers/request.go), and Envoy's log the first.
_SHARE_BY_TENANT = f"""\
function envoy_on_request(request)
  local headers = request:headers()
  local client = headers:get("{CLIENT_HEADER}")
  if client then
    headers:add("{CLIENT_HEADER}", string.match(client, "^[^.]+"))
  end
end
"""


@dataclass(frozen=True, kw_only=True)
class Picker:
    """The endpoint picker of a pool."""

    pool: str
    namespace: str
    authority: str
    """Host and port of its Service, which has the addresses of the ready ones."""
    parallel: int
    """Requests that may wait for it at once; Envoy's default is 1,024."""
    zero: ZeroPlan | None = None
    """Of a model that may have no replica."""

    @property
    def connection(self) -> Connection:
        """How Envoy reaches it.

        The AI gateway v1.0.0 makes a cluster, too (internal/extensionserver/inferencepool.go), without a policy that
        could change it: it allows 1,024 requests at once, and waits without end for a picker that hangs or whose node
        is gone.
        """
        name = f"inference-platform/picker/{self.namespace}/{self.pool}"
        return Connection(name=name, authority=self.authority, parallel=self.parallel)


def picker_policy(namespace: str, gateway: Mapping[str, str], *, listener: str, picker: Picker) -> dict[str, Any]:
    """EnvoyPatchPolicy that has Envoy ask a picker on the route of its model alone.

    listener: as Envoy Gateway names it. It is the same with and without turns of tenants (`client_policy`).

    It has to outlast the route. While a listener lacks the filter, the AI gateway v1.0.0 adds its own
    (internal/extensionserver/post_translate_modify.go), which is on for all routes that do not switch it off; the
    routes stop switching it off when the pool's goes, and requests for every model fail on what connections are left.

    Until the model's route is there, the policy's status names it. Not protected: without it the AI gateway's is used.
    """
    asked_at = picker_filter(picker.pool, picker.namespace)
    reached = picker.connection
    routes = f'$.virtual_hosts[*].routes[?(@.name=="{model_route(picker.pool, picker.namespace)}")]'
    patches = [
        patch(CLUSTER, reached.name, op="add", path="", value=cluster(reached)),
        patch(LISTENER, listener, op="add", jsonPath=BEFORE_ROUTING, value=asking(picker)),
        patch(
            ROUTES,
            listener,
            op="add",
            jsonPath=routes,
            path=f"/typed_per_filter_config/{asked_at.replace('/', '~1')}",
            value={"@type": _FILTER_CONFIG, "config": {}},
        ),
    ]
    if picker.zero:
        added = [
            {"header": {"key": header, "value": f"{seconds}"}}
            for header, seconds in ((START_HEADER, picker.zero.start_s), (RETRY_HEADER, picker.zero.retry_after_s))
        ]
        patches.append(patch(ROUTES, listener, op="add", jsonPath=routes, path="/response_headers_to_add", value=added))
    # After the front door's own.
    return patch_policy(f"{picker.pool}-picker", namespace, gateway, patches, priority=1)


def client_policy(namespace: str, gateway: Mapping[str, str], *, listener: str) -> dict[str, Any]:
    """EnvoyPatchPolicy with the filter behind all pickers' (`client_again`). Not protected, as a site may end turns."""
    patches = [patch(LISTENER, listener, op="add", jsonPath=BEFORE_ROUTING, value=client_again())]
    # After every picker's.
    return patch_policy(CLIENT_POLICY, namespace, gateway, patches, priority=2)


def asking(picker: Picker) -> dict[str, Any]:
    """The filter through which Envoy asks a picker, as the AI gateway v1.0.0 makes it, but off without a route.

    The AI gateway (internal/extensionserver/inferencepool.go) leaves a filter of this name alone. Its own is on for
    requests that found no route, such as those that break HTTP: their refusal waits for the picker until the connection
    is closed. It also draws a new order of its filters each time, which replaces the listener. It sends answers, too,
    which the picker's plugins do not read, and which would be cut when the picker dies.
    """
    settings = {
        "grpc_service": asked(picker.connection),
        "processing_mode": {
            "request_header_mode": "SEND",
            "request_body_mode": "FULL_DUPLEX_STREAMED",
            "request_trailer_mode": "SEND",
            "response_header_mode": "SKIP",
            "response_body_mode": "NONE",
            "response_trailer_mode": "SKIP",
        },
        "message_timeout": "300s",
    }
    return {
        "name": picker_filter(picker.pool, picker.namespace),
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            **settings,
        },
        "disabled": True,
    }


def shares_by_tenant() -> dict[str, Any]:
    """The filter before pickers that share by tenant: else one with many keys would have a share for each."""
    return {
        "name": _BY_TENANT,
        "typed_config": {
            "@type": f"{_TYPE}.lua.v3.Lua",
            "default_source_code": {"inline_string": _SHARE_BY_TENANT},
        },
    }


def client_again() -> dict[str, Any]:
    """The filter behind those pickers: engines and counts see the client, and its tenant no longer."""
    named = {
        "append": {
            "header": {"key": CLIENT_HEADER, "value": f"%REQ({CLIENT_HEADER})%"},
            "append_action": "OVERWRITE_IF_EXISTS",
        }
    }
    return {
        "name": _BY_CLIENT,
        "typed_config": {
            "@type": f"{_TYPE}.header_mutation.v3.HeaderMutation",
            "mutations": {"request_mutations": [named]},
        },
    }
