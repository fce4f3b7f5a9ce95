"""A Secret that a site's operator writes into the gateway's namespace, and writes again when it is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from floor.namespaces import GATEWAY
from lab.cluster import api
from lab.cluster.api import Manifest
from lab.cluster.parts import metadata_of
from lab.cluster.watching import Listing

log = logging.getLogger(__name__)


def value_of(site_file: Path, *keys: str) -> Any:
    """What the site's file has there; None for one that cannot be read now, as in mid-edit."""
    try:
        value = yaml.safe_load(site_file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    for key in ("config", "inference-platform:site", *keys):
        value = value.get(key) if isinstance(value, dict) else None
    return value


class OperatorSecretController:
    """Keeps the Secret in a cluster whose site wants it."""

    def __init__(self, connection: client.ApiClient, name: str, wanted: Callable[[], Manifest | None]) -> None:
        """wanted: gives the Secret, or None where the site does not name it."""
        self._connection = connection
        self._core = client.CoreV1Api(connection)
        self._name, self._wanted = name, wanted

    @property
    def listings(self) -> list[Listing]:
        """What to follow: the namespace, and the Secret by its name, which is all that the account may read."""
        return [
            partial(self._core.list_namespace, field_selector=f"metadata.name={GATEWAY}"),
            partial(self._core.list_namespaced_secret, GATEWAY, field_selector=f"metadata.name={self._name}"),
        ]

    def reconcile(self) -> None:
        """Write the Secret unless it is there as it should be."""
        wanted = self._wanted()
        if wanted is None:
            return
        spaces, held = (listing(_request_timeout=10).items for listing in self.listings)
        if not any(metadata_of(space).deletion_timestamp is None for space in spaces):
            return
        if any(item.data == wanted["data"] for item in held):
            return
        api.apply(self._connection, wanted)
        log.info("the operator's Secret %s/%s is written", GATEWAY, self._name)
