"""Names that lead to a site, and who writes their records."""

from __future__ import annotations

from stacks.site.checks.dns import gateway_names
from stacks.site.model import SiteConfig


def gateway_records(site: SiteConfig) -> list[str]:
    """Names whose record gets the gateway's address; none where people write them."""
    if site.dns.system == "none":
        return []
    return gateway_names(site.dns.names, site.certificates.names, site.portal.hostname if site.portal else None)


def portal_records(site: SiteConfig) -> list[str]:
    """The same of the portal's address."""
    return [site.portal.hostname] if site.portal and site.dns.system != "none" else []


def describe_dns(site: SiteConfig) -> str:
    """Which records are written where, as text for people; empty where people write them."""
    server = site.dns.rfc2136
    if server is None:
        return ""
    lines = [
        f"dns: external-dns writes records at {server.nameserver}, and marks them as those of {site.name}",
        f"   gateway: {', '.join(gateway_records(site))}",
        *(f"   portal: {name}" for name in portal_records(site)),
        "   it changes no record of another site, and deletes none",
    ]
    return "\n".join(lines)
