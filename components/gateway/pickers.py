"""How Envoy asks the endpoint picker of a pool: the connection to it, and the filter that waits for its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from components.gateway.connections import Connection, asked
from components.gateway.envoy_names import picker_filter


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
    def connection(self) -> Connection:
        """How Envoy reaches it.

        The AI gateway v1.0.0 makes a cluster, too (internal/extensionserver/inferencepool.go), without a policy that
        could change it: it allows 1,024 requests at once, and waits without end for a picker that hangs or whose node
        is gone.
        """
        name = f"inference-platform/picker/{self.namespace}/{self.pool}"
        return Connection(name=name, authority=self.authority, parallel=self.parallel)


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
