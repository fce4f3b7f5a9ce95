"""How Envoy asks the endpoint picker of a pool: the connection to it, and the filter that waits for its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from components.gateway.envoy_names import picker_filter

_TYPE = "type.googleapis.com/envoy."
# A connection on which nothing came for so long is tried by a ping before the next request, and closed where none comes
# back. No pings at other times: gRPC's server closes a connection that is pinged more often than every five minutes
# between answers (grpc-go, internal/transport/http2_server.go, handlePing).
_SILENT_S, _PING_S = 1, 3


@dataclass(frozen=True, kw_only=True)
class Picker:
    """The endpoint picker of a pool."""

    pool: str
    namespace: str
    authority: str
    """Host and port of its Service, which has the addresses of the ready ones."""
    parallel: int
    """Requests that may wait for it at once; Envoy's default is 1,024."""

    @property
    def cluster(self) -> str:
        """Name of the connection to it in Envoy."""
        return f"inference-platform/picker/{self.namespace}/{self.pool}"


def connection(picker: Picker) -> dict[str, Any]:
    """The cluster by which Envoy reaches the picker.

    The AI gateway v1.0.0 makes one, too (internal/extensionserver/inferencepool.go), without a policy that could change
    it: it allows 1,024 requests at once, and waits without end for a picker that hangs or whose node is gone.
    """
    host, port = picker.authority.rsplit(":", 1)
    address = {"socket_address": {"address": host, "port_value": int(port)}}
    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), picker.parallel)
    http2 = {"connection_keepalive": {"connection_idle_interval": f"{_SILENT_S}s", "timeout": f"{_PING_S}s"}}
    return {
        "name": picker.cluster,
        "type": "STRICT_DNS",
        "lb_policy": "LEAST_REQUEST",
        "connect_timeout": "10s",
        "circuit_breakers": {"thresholds": [most]},
        "load_assignment": {
            "cluster_name": picker.cluster,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        # A picker's certificate is its own.
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": f"{_TYPE}extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "common_tls_context": {"validation_context": {}},
            },
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{_TYPE}extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": http2},
            }
        },
    }


def asking(picker: Picker) -> dict[str, Any]:
    """The filter through which Envoy asks a picker, as the AI gateway v1.0.0 makes it, but off without a route.

    The AI gateway (internal/extensionserver/inferencepool.go) leaves a filter of this name alone. Its own is on for
    requests that found no route, such as those that break HTTP: their refusal waits for the picker until the connection
    is closed. It also draws a new order of its filters each time, which replaces the listener. It sends answers, too,
    which the picker's plugins do not read, and which would be cut when the picker dies.
    """
    settings = {
        "grpc_service": {
            "envoy_grpc": {"cluster_name": picker.cluster, "authority": picker.authority},
            "retry_policy": _ask_another_picker(),
        },
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
        "typed_config": {"@type": f"{_TYPE}extensions.filters.http.ext_proc.v3.ExternalProcessor", **settings},
        "disabled": True,
    }


def _ask_another_picker() -> dict[str, Any]:
    """A request that no picker has answered goes to another one.

    Envoy learns of a death from DNS up to 5 s later, and prefers the dead picker until then, as it has no requests.
    """
    others = f"{_TYPE}extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    return {
        "retry_on": "reset",
        "num_retries": 5,
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "1s"},
        "retry_host_predicate": [
            {"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": others}}
        ],
        "host_selection_retry_max_attempts": 50,
    }
