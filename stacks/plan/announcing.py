"""Which machines of a site announce addresses by BGP."""

from __future__ import annotations

from stacks.site.announcing import announcing
from stacks.site.model import SiteConfig


def bgp_sessions(site: SiteConfig) -> dict[str, list[str]]:
    """Names of the peers by the machine that announces to them; none for a site without BGP."""
    machines, bgp = site.cluster.machines, site.addresses.bgp
    if machines is None or bgp is None:
        return {}
    return announcing(machines.model_dump(), {name: peer.model_dump() for name, peer in bgp.peers.items()})
