"""How Envoy reaches a service of the platform by gRPC: the cluster that it asks, and what it does if none answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_TYPE = "type.googleapis.com/envoy."
# A connection on which nothing came for so long is tried by a ping before the next request, and closed where none comes
# back. No pings at other times: gRPC's server closes a connection that is pinged more often than every five minutes
# between answers (grpc-go, internal/transport/http2_server.go, handlePing).
_SILENT_S, _PING_S = 1, 3


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A service whose pods Envoy finds by DNS and asks by gRPC with TLS."""

    name: str
    """Of the cluster in Envoy."""
    authority: str
    """Host and port of its Service, which has the addresses of the ready pods."""
    parallel: int
    """Requests that may wait for it at once; Envoy's default is 1,024."""
    connect_s: int = 10
    """After which a pod that does not take the connection counts as gone, as one of a node without power."""


def cluster(connection: Connection) -> dict[str, Any]:
    """The cluster by which Envoy reaches the service."""
    host, port = connection.authority.rsplit(":", 1)
    address = {"socket_address": {"address": host, "port_value": int(port)}}
    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), connection.parallel)
    http2 = {"connection_keepalive": {"connection_idle_interval": f"{_SILENT_S}s", "timeout": f"{_PING_S}s"}}
    return {
        "name": connection.name,
        "type": "STRICT_DNS",
        "lb_policy": "LEAST_REQUEST",
        "connect_timeout": f"{connection.connect_s}s",
        "circuit_breakers": {"thresholds": [most]},
        "load_assignment": {
            "cluster_name": connection.name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        # Such a service's certificate is its own.
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


def asked(connection: Connection) -> dict[str, Any]:
    """`grpc_service` of a filter: a request that no pod has answered goes to another one.

    Envoy learns from DNS, up to 5 s later, of a pod that has ended, and of a lost node's once Kubernetes has noticed.
    It prefers the dead pod until then, as it has no requests.
    """
    others = f"{_TYPE}extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
    return {
        "envoy_grpc": {"cluster_name": connection.name, "authority": connection.authority},
        "retry_policy": {
            "retry_on": "reset",
            "num_retries": 5,
            "retry_back_off": {"base_interval": "0.025s", "max_interval": "1s"},
            "retry_host_predicate": [
                {"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {"@type": others}}
            ],
            "host_selection_retry_max_attempts": 50,
        },
    }
