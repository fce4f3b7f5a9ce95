"""What of a site holds data: one list for the components that declare it and for the rule that watches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from floor.metadata import DISPOSABLE

Keeping = Literal["protected", "disposable"]
"""Whether the engine refuses to delete or replace what holds data, or may delete it with its data."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """One sort of resource that holds data."""

    package: str
    """First part of its Pulumi type, such as `kubernetes`."""
    kind: str
    """Last part of it, whatever the API version."""
    name: str = ""
    """Its logical name, where other resources of the type hold no data."""
    retained: bool = False
    """Whether the engine forgets it instead of deleting it, once it is no longer protected."""
    permission: str
    """How a site lets it go."""


_VOLUMES = f"storage.volumes or models.<name>.volume: disposable in the site (annotation {DISPOSABLE} on the object)"

VOLUME = Holder(package="kubernetes", kind="PersistentVolumeClaim", permission=_VOLUMES)
STATEFUL_SET = Holder(package="kubernetes", kind="StatefulSet", permission=_VOLUMES)
IDENTITY = Holder(
    package="command",
    kind="Command",
    name="machines-identity-secrets",
    retained=True,
    permission="cluster.machines.secrets: disposable in the site",
)
"""The secrets of a cluster of machines: without them it can be neither changed nor recovered."""

PEPPER = Holder(
    package="command",
    kind="Command",
    name="directory-pepper",
    retained=True,
    permission="callers.pepper: disposable in the site",
)
"""What the directory's keys are hashed under: with another one none of them works."""

STORAGE = Holder(
    package="kubernetes",
    kind="Release",
    name="storage-longhorn",
    permission="storage.volumes: disposable in the site (value deletingConfirmationFlag of the release)",
)
"""The storage system under all volumes: uninstalled, it takes every one of them along, those of others too."""

DATABASE = Holder(package="kubernetes", kind="Cluster", permission="database.volumes: disposable in the site")
"""PostgreSQL servers of the platform's own, whose volumes go with their object."""

HOLDERS = (VOLUME, STATEFUL_SET, IDENTITY, PEPPER, STORAGE, DATABASE)


def holder(type_: str, name: str) -> Holder | None:
    """The sort of a resource by its Pulumi type and logical name; None for one that holds no data."""
    asked = (type_.partition(":")[0], type_.rpartition(":")[2])
    return next((sort for sort in HOLDERS if (sort.package, sort.kind) == asked and sort.name in ("", name)), None)
