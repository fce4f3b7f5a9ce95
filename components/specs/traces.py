"""What a site may set for traces of requests."""

from __future__ import annotations

import ipaddress
import re

from pydantic import Field, field_validator

from floor.problems import WrongValueError, shown
from floor.spec import Spec

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
# A name in DNS, or an IPv4 address, which has the same form.
_COLLECTOR = re.compile(rf"(?P<host>{_LABEL}(\.{_LABEL})*):(?P<port>[1-9][0-9]{{0,4}})")
_LONGEST_HOST = 253
STEPS_OF_ONE_PERCENT = 100
"""Envoy counts shares to a hundredth of a percent."""


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
        if matched is None or int(matched["port"]) > 65535 or len(matched["host"]) > _LONGEST_HOST:
            raise WrongValueError(
                "collector is not HOST:PORT",
                got=shown(value),
                allowed="a name or an IPv4 address without a scheme, and a port from 1 to 65535",
                fix="write it as otel-collector.observability.svc.cluster.local:4317",
            )
        if what := _no_collector(matched["host"]):
            raise WrongValueError(
                f"collector is {what}",
                got=shown(value),
                allowed="a name or an address at which Envoy's pods reach the collector",
                fix="write its Service, such as otel-collector.observability.svc.cluster.local:4317",
            )
        return value

    @field_validator("sampled_percent")
    @classmethod
    def _is_in_steps(cls, value: float) -> float:
        steps = round(value * STEPS_OF_ONE_PERCENT)
        if abs(value * STEPS_OF_ONE_PERCENT - steps) > 1e-6:
            raise WrongValueError(
                "sampled_percent has a part below 0.01, which Envoy would not count",
                got=str(value),
                allowed="0.01 to 100 in steps of 0.01",
                fix=f"write {steps / STEPS_OF_ONE_PERCENT:g}",
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


def _no_collector(host: str) -> str:
    """Why nothing else than the pod itself, or no host at all, is there; empty for a place of a collector."""
    if host == "localhost" or host.endswith(".localhost"):
        return "Envoy's own pod"
    # A name does not end in a number (RFC 3696, section 2).
    if not host.rpartition(".")[2].isdecimal():
        return ""
    try:
        ip = ipaddress.IPv4Address(host)
    except ValueError:
        return "neither a name nor an IPv4 address"
    if ip.is_loopback:
        return "Envoy's own pod"
    return "no address of a host" if ip.is_unspecified or ip.is_multicast or ip.is_reserved else ""
