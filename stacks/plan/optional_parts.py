"""Parts of a site that need definitions of their own."""

from __future__ import annotations

from stacks.facts.versions import OptionalPart
from stacks.site.model import SiteConfig


def optional_parts(site: SiteConfig) -> list[OptionalPart]:
    """Those that this program installs; no other site gets their definitions."""
    parts: list[OptionalPart] = []
    if site.certificates.system == "cert_manager":
        parts.append("cert_manager")
    if site.monitoring.system == "prometheus_operator":
        parts.append("prometheus_operator")
    return parts
