"""What a site may set for the records in DNS that lead to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from floor.spec import Spec

ANNOTATION_PREFIX = "inference-platform-dns/"
"""Of annotations that external-dns reads: another one in the cluster reads none of them, and this one no others."""
TSIG_SECRET_KEY = "secret"  # noqa: S105 - the name of a key
"""Of the Secret that `tsig_secret` names."""


class DnsServerSpec(Spec):
    """A DNS server that takes updates (RFC 2136) and zone transfers that a key signs (TSIG): BIND, Knot, PowerDNS and
    others."""

    nameserver: str
    """Its host name or address as pods reach it, with the port unless that is 53."""
    zones: tuple[str, ...] = Field(min_length=1)
    """Its zones that have the names."""
    tsig_key: str
    """Name of the key in the DNS server's configuration. It may update and transfer the zones."""
    tsig_algorithm: Literal["hmac-sha256", "hmac-sha512"] = "hmac-sha256"
    """Algorithm of the key."""
    tsig_secret: str
    """Secret in `external-dns` that you make, with the key as `secret`, in base64 as the DNS server's configuration has
    it. `up` waits 15 minutes until it is there."""


class DnsSpec(Spec):
    """Who writes the records by which clients find the gateway and the portal."""

    system: Literal["none", "external_dns"] = "none"
    """`external_dns`: this program installs external-dns, which writes a record for each name with the address that its
    load balancer has; `none`: you write them."""
    names: tuple[str, ...] = ()
    """Names of the gateway; if none is given, the host names of `certificates.names`. The portal's is
    `portal.hostname`."""
    rfc2136: DnsServerSpec | None = None
    """The server that has the records."""

    @model_validator(mode="after")
    def _is_read(self) -> DnsSpec:
        others = sorted(self.model_fields_set - {"system"})
        if self.system == "none" and others:
            raise WrongValueError(
                f"{', '.join(others)} set, and system none reads nothing of it",
                fix="set system to external_dns, or take it out",
            )
        if self.system == "external_dns" and self.rfc2136 is None:
            raise WrongValueError(
                "lacks rfc2136: no DNS server is known",
                got="system external_dns",
                fix="name the server, its zones and its key in rfc2136",
            )
        return self


def recorded(names: Iterable[str]) -> dict[str, Any]:
    """Field of a Service by which its address gets these names; nothing without any."""
    text = ",".join(names)
    return {"annotations": {f"{ANNOTATION_PREFIX}hostname": text}} if text else {}


def host_and_port(server: str) -> tuple[str, int]:
    """Of a server that may have a port: HOST, HOST:PORT, an IPv6 address, or one in brackets before a port."""
    if server.count(":") > 1 and not server.startswith("["):
        return server, 53
    host, _, port = server.rpartition(":") if server.rstrip("0123456789").endswith(":") else (server, "", "")
    return host.strip("[]"), int(port or 53)
