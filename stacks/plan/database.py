"""The platform's own PostgreSQL: who keeps what in it, on which volumes, and what a loss costs."""

from __future__ import annotations

from components.specs.database import ARCHIVE_MINUTES
from components.specs.longhorn import database_class
from stacks.site.model import SiteConfig


def own_databases(site: SiteConfig) -> list[str]:
    """Databases that the program runs on this site."""
    if site.database.run_by != "cloudnative_pg":
        return []
    return [name for name, is_there in (("directory", site.has_directory), ("ledger", site.has_ledger)) if is_there]


def database_volume_class(site: SiteConfig) -> str:
    """Class of its servers' volumes."""
    if site.database.storage_class is not None:
        return site.database.storage_class
    named = site.storage.storage_class
    return database_class(named) if site.storage.system == "longhorn" else named


def describe_database(site: SiteConfig) -> str:
    """What is lost with nodes, as text for people; empty where the database is the site's own."""
    databases = own_databases(site)
    if not databases:
        return ""
    spec = site.database
    lines = [
        f"database: {' and '.join(databases)} by CloudNativePG, {spec.instances} servers with {spec.size_gib} GiB each "
        f"of class {database_volume_class(site)}",
        "  one node lost: no confirmed row; writes wait until another server takes them, and each always waits for a "
        "second node",
    ]
    if spec.backups is None:
        lines.append("  all nodes lost: everything, as there are no backups (database.backups)")
    else:
        lines.append(
            f"  all nodes lost: what was written since the log was last archived, {ARCHIVE_MINUTES} minutes and an "
            f"upload at most; any moment of the last {spec.backups.keep_days} days can be restored"
        )
    return "\n".join(lines)
