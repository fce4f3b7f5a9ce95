"""Parts of a site that need definitions of their own."""

from __future__ import annotations

from components.addons import registry
from stacks.site.model import SiteConfig

MONITORING = "prometheus_operator"


def optional_parts(site: SiteConfig) -> list[str]:
    """Those that this program installs; no other site gets their definitions."""
    addons = [addon.key for addon in registry.installed(site) if addon.has_definitions]
    return [*addons, *([MONITORING] if site.monitoring.system == MONITORING else [])]
