"""What follows from a site for the volumes of its monitoring."""

from __future__ import annotations

from components.specs.longhorn import DATABASE_COPIES, database_class, scratch_class, scratch_copies
from stacks.site.model import SiteConfig


def volume_class(site: SiteConfig) -> str | None:
    """Class of the volumes of Prometheus and Alertmanager; None where none is known.

    Longhorn's for scratch volumes: it deletes a volume with its claim, and the one for databases keeps it.
    """
    return site.monitoring.storage_class or scratch_volumes(site)


def scratch_volumes(site: SiteConfig) -> str | None:
    """The program's own class for what may be lost; None without its Longhorn."""
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


def describe_grafana(site: SiteConfig) -> str:
    """Who gets in, how, and what is kept, as text for people; empty where the program installs no Grafana."""
    spec = site.monitoring.grafana
    if spec.run_by != "platform":
        return ""
    way = (
        f"at {spec.url}, by way of the namespace {spec.proxy.namespace}" if spec.proxy else "by a forwarded port alone"
    )
    people = site.cluster.machines and site.cluster.machines.administrators
    if spec.login and people:
        roles = {"admins": "Admin", "operators": "Editor", "viewers": "Viewer"}
        groups = [f"{role}: {', '.join(names)}" for key, role in roles.items() if (names := getattr(people, key))]
        login = f"by a login at {people.issuer}; {'; '.join(groups)}"
    else:
        login = f"one administrator, by the Secret {spec.admin_secret}"
    lines = [
        f"grafana: the dashboards over the site's own Prometheus, {way}",
        f"   who gets in: {login}",
        "   it keeps nothing: what people save in it is lost when its pod restarts",
    ]
    return "\n".join(lines)
