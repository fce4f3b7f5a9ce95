"""Objects that the AI gateway's controller holds by its finalizer go when they are deleted.

It tries once to remove the finalizer. In the foreground, the garbage collector writes the object at the same moment:
of 120 backends, 4 stayed for good, and of 60 routes, 1; none of as many that were deleted in the background.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from kubernetes import client

from components.models.ranking import ranking_backend
from lab.plugins.kubernetes.deleting import propagation
from tests import documented
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import MODELS, Cluster, until
from tests.lab.site.running_site import Site

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("C.05")]

COUNT, DISTURBED = 40, 8
PREFIX = "short-lived-"
KIND = ("aigateway.envoyproxy.io", "v1beta1", MODELS, "aiservicebackends")
FINALIZER = "aigateway.envoyproxy.io/finalizer"
# The controller needs milliseconds.
WRITTEN_S = 3


class Backends:
    """Backends of models that do not exist."""

    def __init__(self, cluster: Cluster) -> None:
        self._custom = cluster.custom

    def make(self, count: int) -> None:
        """Create so many, and wait until the controller holds all, and has written their states after that."""
        for number in range(count):
            _, body = ranking_backend(f"{PREFIX}{number}", MODELS, port=8000)
            self._custom.create_namespaced_custom_object(*KIND, body)
        until(
            lambda: len(self.held()) == count and all(item.get("status") for item in self._present().values()),
            what="the finalizers of the controller",
        )

    def delete(self, policy: str) -> None:
        for name in self._present():
            self._custom.delete_namespaced_custom_object(
                *KIND, name, body=client.V1DeleteOptions(propagation_policy=policy)
            )

    def held(self) -> list[str]:
        """Names of those that have the finalizer."""
        return [name for name, item in self._present().items() if FINALIZER in item["metadata"].get("finalizers", [])]

    def delete_while_others_write(self) -> None:
        names = list(self._present())
        with ThreadPoolExecutor(len(names)) as writers:
            writing = [writers.submit(self._write, name) for name in names]
            self.delete("Background")
        for ended in writing:
            ended.result()

    def _write(self, name: str) -> None:
        until_s = time.monotonic() + WRITTEN_S
        with suppress(client.ApiException):
            while time.monotonic() < until_s:
                written = {"metadata": {"annotations": {"written": str(time.monotonic_ns())}}}
                self._custom.patch_namespaced_custom_object(*KIND, name, written)

    def clear(self) -> None:
        """Remove what a failed test has left."""
        for name in self._present():
            with suppress(client.ApiException):
                self._custom.delete_namespaced_custom_object(*KIND, name)
                self._custom.patch_namespaced_custom_object(*KIND, name, {"metadata": {"finalizers": None}})

    def _present(self) -> dict[str, Any]:
        listed: Any = self._custom.list_namespaced_custom_object(*KIND)
        named = {item["metadata"]["name"]: item for item in listed["items"]}
        return {name: item for name, item in named.items() if name.startswith(PREFIX)}


@pytest.fixture
def backends(cluster: Cluster) -> Iterator[Backends]:
    made = Backends(cluster)
    yield made
    made.clear()


def test_backends_are_deleted_although_the_controller_tries_once(backends: Backends) -> None:
    backends.make(COUNT)
    _, body = ranking_backend("any", MODELS, port=8000)
    backends.delete(propagation(body))
    until(lambda: not backends.held(), what="the controller's release of all")


def test_a_controller_that_starts_releases_what_it_held(site: Site, backends: Backends) -> None:
    def stayed() -> list[str]:
        backends.make(DISTURBED)
        backends.delete_while_others_write()
        return backends.held()

    # Whether another write comes between the controller's read and its own is a matter of luck.
    until(stayed, what="a backend that the controller does not release")
    restart = documented.argv("kubectl rollout restart -n envoy-ai-gateway-system deployment/ai-gateway-controller")
    kubectl(site.lab, *restart[1:])
    until(lambda: not backends.held(), what="the release by the controller's successor")
