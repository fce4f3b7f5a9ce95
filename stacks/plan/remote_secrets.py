"""Which Secrets of a site its store fills, and where their keys are in it."""

from __future__ import annotations

from collections.abc import Mapping

from components.specs.secrets import RemoteSecret, RemoteSpec
from stacks.site.model import SiteConfig
from stacks.site.secret_references import SecretReference, secret_references


def remote_secrets(site: SiteConfig) -> list[RemoteSecret]:
    """Each once, sorted by namespace and name; none where the site makes all of them."""
    if site.secrets.system == "none":
        return []
    readers: dict[tuple[str, str], list[SecretReference]] = {}
    for reference in secret_references(site.model_dump(mode="json", exclude_unset=True)):
        if reference.name in site.secrets.remote:
            readers.setdefault((reference.namespace, reference.name), []).append(reference)
    return [_remote(entries, site.secrets.remote) for _, entries in sorted(readers.items())]


def _remote(readers: list[SecretReference], remote: Mapping[str, RemoteSpec]) -> RemoteSecret:
    first = readers[0]
    entry = remote[first.name]
    needed = {key for reader in readers for key in reader.keys}
    asked = {key for reader in readers for key in reader.optional if key in entry.properties}
    return RemoteSecret(
        namespace=first.namespace,
        name=first.name,
        type=first.type,
        data={key: (entry.key, entry.properties.get(key, key)) for key in sorted(needed | asked)},
    )
