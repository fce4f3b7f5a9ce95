"""Names and a port in Envoy's configuration: those of Envoy Gateway and the AI gateway, and our own."""

from __future__ import annotations

# Envoy Gateway gives each route its keys and its body's limit under these.
KEY_FILTER = "envoy.filters.http.api_key_auth"
BODY_LIMIT_FILTER = "envoy.filters.http.buffer"
# Metadata of a request under which Envoy keeps what the gatekeeper decided.
DECISIONS = "envoy.filters.http.ext_authz"
# And that a gatekeeper has read the body.
CHECKED = "inference-platform.bodies"
ROUTER_FILTER = "envoy.filters.http.router"
# Ours: an alias of a model becomes its name. The AI gateway knows the beginning, so its processor comes right before.
MODEL_NAMES_FILTER = "envoy.filters.http.lua/inference-platform.model-names"
_DOOR_PORT = 8443


def http_manager(*, tls: bool) -> str:
    """Path of a listener's HTTP connection manager: with TLS in a filter chain of its own, else in the default one."""
    return f"{'filter_chains/0' if tls else 'default_filter_chain'}/filters/0/typed_config"


CLIENT_POLICY = "client-again"
"""EnvoyPatchPolicy of the filter behind pickers, where tenants share their turns."""
PICKER_FILTERS = "envoy.filters.http.ext_proc/endpointpicker/"


def picker_filter(pool: str, namespace: str) -> str:
    """Filter that asks a pool's endpoint picker, as the AI gateway names it."""
    return f"{PICKER_FILTERS}{pool}_{namespace}_ext_proc"


def model_route(model: str, namespace: str) -> str:
    """Route of the requests for a model: the first of its HTTPRoute. The AI gateway adds another for all paths."""
    return f"httproute/{namespace}/{model}/rule/0/match/0/*"


def unprivileged(port: int) -> int:
    """Where an Envoy pod listens for this port of a Gateway, by Envoy Gateway (1.9.1, internal/gatewayapi/listener.go).

    10,000 more where it would need privileges.
    """
    return port if port >= 1024 else port + 10_000


def door_port(port: int) -> int:
    """Where an Envoy pod listens once the front door is in its listener.

    Envoy Gateway's own port is that of the Gateway, or 10,000 more where it needs privileges. Nothing leads there, so a
    listener without the front door has no clients.
    """
    return _DOOR_PORT if port != _DOOR_PORT else _DOOR_PORT + 1
