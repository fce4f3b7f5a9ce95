"""What follows from a site for the volumes of its monitoring."""

from __future__ import annotations

from components.specs.longhorn import DATABASE_COPIES, database_class, scratch_class, scratch_copies
from stacks.site.model import SiteConfig


def volume_class(site: SiteConfig) -> str | None:
    """Class of the volumes of Prometheus and Alertmanager; None where none is known.

    Longhorn's for scratch volumes: it deletes a volume with its claim, and the one for databases keeps it.
    """
    if site.monitoring.storage_class is not None:
        return site.monitoring.storage_class
    return scratch_class(site.storage.storage_class) if site.storage.system == "longhorn" else None


def longhorn_copies(
    site: SiteConfig, weight_copies: int | None = None, *, storage_class: str | None = None
) -> int | None:
    """Copies of a volume of that class, or of another one; None where it is no class of the program's own Longhorn.

    weight_copies: of a volume of weights, in place of the site's own number.
    """
    name, storage = site.storage.storage_class, site.cluster.machines and site.cluster.machines.hgx.storage
    of_weights = weight_copies or site.storage.longhorn.weight_replicas
    by_class = {
        name: of_weights,
        database_class(name): DATABASE_COPIES[storage.engine if storage else "v1"],
        scratch_class(name): scratch_copies(of_weights),
    }
    return by_class.get(storage_class or volume_class(site) or "") if site.storage.system == "longhorn" else None
