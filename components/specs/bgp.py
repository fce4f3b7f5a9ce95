"""What a site may set for routers that learn the addresses of load balancers by BGP."""

from __future__ import annotations

from pydantic import Field

from floor.spec import Name, Spec

# The last of 32 bits is reserved (RFC 7300).
MOST_ASN = 2**32 - 2


class BgpPeerSpec(Spec):
    """One router, and how machines speak to it. Machines open the session; the router may wait for it."""

    address: str
    """Address of the router."""
    asn: int = Field(ge=1, le=MOST_ASN)
    """Number of the router's autonomous system."""
    nodes: tuple[str, ...] = ()
    """Machines that announce to this router, such as those of its rack; if not set, all that take pods without GPUs,
    which are those that run the gateway's proxies."""
    port: int = Field(default=179, ge=1, le=65535)
    """TCP port of the router."""
    password_secret: str | None = None
    """Secret in `cilium-bgp-secrets` that you make, with the session's password (TCP MD5) as `password`. `up` waits 15
    minutes until it is there. Without it the session has no password."""
    hold_time_s: int = Field(default=90, ge=3, le=65535)
    """Seconds without a message after which the session is over. For so long a router may still send requests to a
    machine that died, and `graceful_restart_s` longer. Messages come three times as often."""
    graceful_restart_s: int = Field(default=120, ge=0, le=4095)
    """Seconds that the router keeps the routes of a machine whose Cilium restarts: its pods are reached meanwhile. A
    machine that died looks the same to a router (RFC 8538). 0: it drops them at once, and streams through that machine
    may be cut."""
    hops: int = Field(default=1, ge=1, le=255)
    """Most hops to a router of another autonomous system; 1: the router is in a subnet of the machine."""


class BgpSpec(Spec):
    """Sessions by which machines announce the pool's addresses that are in use, each as a route of its own."""

    local_asn: int = Field(ge=1, le=MOST_ASN)
    """Number of the machines' autonomous system, such as one of 64512 to 65534, which are private."""
    peers: dict[Name, BgpPeerSpec] = Field(min_length=1)
    """Routers by a name of your own."""
