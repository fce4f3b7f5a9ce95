"""What a site may set for the gateway's certificate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from components.specs.acme import AcmeSpec
from floor.spec import Spec

CertificateSystem = Literal["none", "external", "cert_manager"]


class CertificatesSpec(Spec):
    """Who makes the gateway's certificate and renews it."""

    system: CertificateSystem = "none"
    """`cert_manager`: this program installs cert-manager, which writes the Secret that `gateway.certificate_secret`
    names; `external`: the cluster has cert-manager already; `none`: you make that Secret and renew it."""
    names: tuple[str, ...] = Field(default=())
    """Names and addresses that the certificate is for, such as `llm.site.example`; clients call one of them."""
    ca_secret: str | None = None
    """Secret in `inference-gateway` that you make, with a CA of your own: its certificate as `tls.crt` and its key as
    `tls.key`. `up` waits 15 minutes until it is there. This, `acme` or `cluster_issuer`."""
    acme: AcmeSpec | None = None
    """An ACME server that issues it, by DNS."""
    cluster_issuer: str | None = None
    """A ClusterIssuer of cert-manager that you make, for example for ACME with another DNS provider. `up` waits 15
    minutes for the certificate."""

    @property
    def has_own_ca(self) -> bool:
        """Whether cert-manager issues it of a CA of the site, whose certificate it writes beside as `ca.crt`."""
        return self.system != "none" and self.ca_secret is not None
