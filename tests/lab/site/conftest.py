"""The lab's platform, brought up once for all tests of this folder by the checked-in program and stack file.

Tests that take something away for good (a destroyed stack, a killed API server) carry the mark `last` and run last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from kubernetes import client, config

from lab import deploy, session
from lab.deploy import Front
from lab.paths import Lab


@dataclass(frozen=True, kw_only=True)
class Site:
    """A running platform: where it answers, with which keys, and the lab under it."""

    lab: Lab
    front: Front

    @property
    def key(self) -> str:
        return self.front.keys[self.front.client]

    def http(self, timeout_s: float = 60) -> httpx.Client:
        """A client of the gateway that carries the tenant's key."""
        return httpx.Client(
            base_url=self.front.endpoint,
            headers={"Authorization": f"Bearer {self.key}"},
            trust_env=False,
            timeout=httpx.Timeout(timeout_s, connect=5),
        )

    def kubernetes(self) -> client.ApiClient:
        return config.new_client_from_config(config_file=str(self.lab.kubeconfig))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("last") is not None)


@pytest.fixture(scope="session")
def site(lab: Lab) -> Iterator[Site]:
    """The platform after `pulumi up`, proven to answer."""
    session.run_pulumi(lab, "up", "--yes", "--skip-preview", "--stack", session.STACK)
    front = deploy.front(lab)
    for model in front.models:
        deploy.ask(front, model=model)
    yield Site(lab=lab, front=front)
