"""A small cluster in a spare lab, and the fixtures of its tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from kubernetes import client

from lab.cluster import api
from lab.cluster.parts import name_of
from lab.paths import Lab
from tests.lab.cluster_by_hand import bring_up_cluster
from tests.lab.waiting import eventually

_SERIAL = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(spare_lab: Lab) -> Lab:
    bring_up_cluster(spare_lab, hgx=2)
    return spare_lab


@pytest.fixture
def core(cluster: Lab) -> Iterator[client.CoreV1Api]:
    with api.connect(cluster) as connection:
        yield client.CoreV1Api(connection)


@pytest.fixture
def namespace(core: client.CoreV1Api) -> Iterator[str]:
    name = f"test-{next(_SERIAL)}"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    # Its default account is made by the controller manager, and pods are refused before.
    eventually(lambda: any(name_of(a) == "default" for a in core.list_namespaced_service_account(name).items))
    yield name
    core.delete_namespace(name)
