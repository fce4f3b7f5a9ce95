"""What a site may set for access to the platform."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from components.specs.request_log import RequestLogSpec
from components.specs.traces import TracesSpec
from floor.problems import WrongValueError
from floor.spec import MOST_REPLICAS, MOST_SECONDS, MOST_STREAMS, Spec

ENVOY_REQUESTS = {"cpu": "100m", "memory": "512Mi"}
"""Of one Envoy pod: Envoy Gateway's own."""
MOST_PROXY_CORES = 64
_ENVOY_SHARE = 0.6
"""Of a pod's CPU time, Envoy's; the rest is the AI gateway's processor's (benchmarks/gateway_cpu.py)."""


class GatewaySpec(Spec):
    """How the platform is reached."""

    controllers: Literal["chart", "external"] = "chart"
    """`chart`: this program installs Envoy Gateway and the AI gateway; `external`: the cluster has them already."""
    webhook_certificate_rotation: int = Field(default=1, ge=1)
    """Increase it within a year: the certificate that the AI gateway's chart makes for its webhook lasts 365 days."""
    port: int = Field(default=443, ge=1, le=65535)
    """Port on the load balancer's address."""
    certificate_secret: str | None = None
    """TLS Secret in the gateway's namespace; required unless the port is 80. Cert-manager writes it where
    `certificates` has it do so."""
    replicas: int = Field(default=2, ge=1, le=MOST_REPLICAS)
    """Envoy pods."""
    external_traffic_policy: Literal["Local", "Cluster"] = "Local"
    """`Local` keeps client addresses; `Cluster` lets every node accept traffic."""
    address: str | None = None
    """Address of the load balancer, which whatever assigns addresses then must give; any that is free if not given."""
    load_balancer_class: str | None = None
    """Class of the load balancer that serves the address; the cluster's default if not given."""
    max_body_mib: int | None = Field(default=None, ge=1, le=4)
    """Largest request body; what the largest context of the models can need if not given. The endpoint picker takes no
    message above 4 MiB, of which 4 KiB are around the body."""
    stream_idle_timeout_s: int = Field(default=900, ge=60, le=MOST_SECONDS)
    """A stream that carries no byte for this long is cut; it must outlast the longest prefill."""
    longest_stream_s: int | None = Field(default=None, ge=1, le=MOST_SECONDS)
    """Streams run on for this long when an Envoy stops or the gateway's listener changes; the largest of the models'
    counts where it is longer, or where this is not given."""
    max_parallel_streams: int = Field(default=65_536, ge=1024, le=MOST_STREAMS)
    """Requests that one Envoy pod carries at once; Envoy's own default of 1,024 is below one busy node."""
    cores: float | None = Field(default=None, ge=0.1, le=MOST_PROXY_CORES)
    """Cores that one Envoy pod requests, for Envoy and the AI gateway's processor in it; the proof shows what the
    declared load takes. Another number replaces the pods one by one. Envoy Gateway's own 0.1, for Envoy alone, if not
    given."""
    memory_mib: int = Field(default=4096, ge=1024, le=2**19)
    """Memory of one Envoy pod. From half of it on, those go whose answers pile up because they hardly read; at three
    quarters new requests are refused (503)."""

    request_log: RequestLogSpec = RequestLogSpec()
    """Which requests are logged."""
    traces: TracesSpec | None = None
    """Where traces of requests go; none are made if not given."""

    @property
    def requests(self) -> dict[str, str]:
        """What Envoy requests in one of its pods."""
        own = {} if self.cores is None else {"cpu": _millicores(_ENVOY_SHARE * self.cores)}
        return ENVOY_REQUESTS | own

    @property
    def processor_requests(self) -> dict[str, str]:
        """What the AI gateway's processor requests beside it."""
        return {} if self.cores is None else {"cpu": _millicores((1 - _ENVOY_SHARE) * self.cores)}

    @model_validator(mode="after")
    def _plain_http_only_on_80(self) -> GatewaySpec:
        if self.port != 80 and not self.certificate_secret:
            raise WrongValueError(
                f"port {self.port} needs certificate_secret; plain HTTP is allowed on port 80 alone",
                fix="name the TLS Secret of the namespace inference-gateway there, or write port: 80",
            )
        return self


def _millicores(cores: float) -> str:
    return f"{round(1000 * cores)}m"
