"""What a site may set for traces of requests."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from floor.problems import WrongValueError
from floor.spec import Spec

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
# A name in DNS, or an IPv4 address, which has the same form.
_COLLECTOR = re.compile(rf"(?P<host>{_LABEL}(\.{_LABEL})*):(?P<port>[1-9][0-9]{{0,4}})")


class TracesSpec(Spec):
    """A span of each sampled request, without prompt, answer or key, sent to your OpenTelemetry collector."""

    collector: str
    """`HOST:PORT` of the collector, such as `otel-collector.observability.svc.cluster.local:4317`. Envoy sends OTLP
    over gRPC and without TLS, so keep it in the cluster or on a network of your own."""
    sampled_percent: float = Field(default=1, ge=0.01, le=100)
    """Share of all requests that is traced, in steps of 0.01. Clients cannot ask for more."""

    @field_validator("collector")
    @classmethod
    def _has_host_and_port(cls, value: str) -> str:
        matched = _COLLECTOR.fullmatch(value)
        if matched is None or int(matched["port"]) > 65535:
            raise WrongValueError(
                "collector is not HOST:PORT",
                got=value,
                allowed="a name or an IPv4 address without a scheme, and a port from 1 to 65535",
                fix="write it as otel-collector.observability.svc.cluster.local:4317",
            )
        return value

    @property
    def host(self) -> str:
        """Name or address of the collector."""
        return self.collector.partition(":")[0]

    @property
    def port(self) -> int:
        """Its port for OTLP over gRPC."""
        return int(self.collector.partition(":")[2])
