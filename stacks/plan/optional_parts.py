"""Parts of a site that need definitions of their own."""

from __future__ import annotations

from components.addons import registry
from stacks.facts import versions
from stacks.site.model import SiteConfig


def optional_parts(site: SiteConfig) -> list[str]:
    """Those that this program installs; no other site gets their definitions."""
    installed = {addon.key for addon in registry.installed(site)} | {site.monitoring.system}
    return [part for part in versions.load().optional_parts if part in installed]
