"""What a site may set for an ACME server that issues the gateway's certificate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from floor.spec import Spec

ACCOUNT_SECRET = "inference-acme"  # noqa: S105 - a name
"""Secret in `inference-gateway` in which cert-manager keeps the account's key, an RSA key that it makes."""


def bracketed(server: str) -> str:
    """A DNS server with an IPv6 address in brackets, as cert-manager reads it with a port and without."""
    return f"[{server}]" if server.count(":") > 1 and not server.startswith("[") else server


class Rfc2136Spec(Spec):
    """The DNS server with the zone of the certificate's names: it takes updates (RFC 2136) that a key signs (TSIG)."""

    nameserver: str
    """Its host name or address as pods reach it, with the port unless that is 53. Updates go by TCP."""
    tsig_key: str
    """Name of the key in the DNS server's configuration."""
    tsig_algorithm: Literal["hmac-sha256", "hmac-sha512"] = "hmac-sha256"
    """Algorithm of the key."""
    tsig_secret: str
    """Secret in `inference-gateway` that you make, with the key as `secret`, in base64 as the DNS server's
    configuration has it. `up` waits 15 minutes for the certificate, and so for the Secret."""


class AcmeSpec(Spec):
    """An ACME server (RFC 8555), public or the site's own, to which a record in DNS proves the names (DNS-01)."""

    server: str
    """Https address of its directory."""
    email: str | None = None
    """Address that the server may write to about the account."""
    ca: str | None = None
    """Certificates (PEM) that cert-manager trusts the server by, in place of its image's own; for a private server."""
    rfc2136: Rfc2136Spec
    """Where the record is written."""
    resolvers: tuple[str, ...] = Field(default=())
    """DNS servers by address that cert-manager asks for zone and record before it calls the ACME server, with the port
    unless that is 53; they must know the zone. If not set, those of the cluster and of the zone. Read with
    `system: cert_manager` alone."""
