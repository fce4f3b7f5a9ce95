"""What follows from a site for the volumes of its monitoring."""

from __future__ import annotations

from components.specs.longhorn import database_class, scratch_class
from stacks.site.model import SiteConfig


def volume_class(site: SiteConfig) -> str | None:
    """Class of the volumes of Prometheus and Alertmanager; None where none is known.

    Longhorn's for scratch volumes: it deletes a volume with its claim, and the one for databases keeps it.
    """
    if site.monitoring.storage_class is not None:
        return site.monitoring.storage_class
    return scratch_class(site.storage.storage_class) if site.storage.system == "longhorn" else None


def on_longhorn(site: SiteConfig) -> bool:
    """Whether that is a class of the program's own Longhorn."""
    name = site.storage.storage_class
    own = (name, database_class(name), scratch_class(name))
    return site.storage.system == "longhorn" and volume_class(site) in own
