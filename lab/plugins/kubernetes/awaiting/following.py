"""Follows one object through the API server, by the lab's one loop of list and watch."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final

from urllib3.exceptions import HTTPError

from lab import watching
from lab.plugins.kubernetes.cluster import Cluster
from lab.plugins.kubernetes.errors import ApiError
from lab.plugins.kubernetes.objects import gvk_of, metadata, name_of, namespace_of
from lab.plugins.kubernetes.properties import Tree

# A watch that ends with one of these is started again from a list.
_PASSING_STATUS: Final = (404, 410, 429, 500, 503, 504)


def follow(cluster: Cluster, live: Tree, seconds: Callable[[], int]) -> Generator[watching.Change | None]:
    """What happens to an object after `live` was read; None at least after each `seconds`, asked at each watch.

    Raises what Cluster's methods raise, but survives what passes.
    """
    version = str(metadata(live).get("resourceVersion") or "")
    return watching.follow(_Source(cluster, live, seconds), watching.Collection([live], version))


class _Source:
    lost = (HTTPError,)

    def __init__(self, cluster: Cluster, live: Tree, seconds: Callable[[], int]) -> None:
        self._cluster = cluster
        self._object = gvk_of(live), name_of(live), namespace_of(live)
        self._seconds = seconds

    def list(self) -> Tree:
        try:
            return self._cluster.list_one(*self._object)
        except ApiError as error:
            if not error.not_found:
                raise
            # The kind itself is gone, and all objects with it.
            return {"metadata": {"resourceVersion": ""}, "items": []}

    def watch(self, version: str) -> Generator[bytes]:
        try:
            yield from self._cluster.watch_one(*self._object, since=version, seconds=self._seconds())
        except ApiError as error:
            if error.status not in _PASSING_STATUS:
                raise
            raise watching.RefusedError(error.status, error.message) from error

    def pause(self, seconds: float, _reason: str) -> None:
        self._cluster.pause(seconds)
