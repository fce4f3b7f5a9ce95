"""A spare lab without a cluster, for machines that bring one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client

from lab.cluster import api
from lab.paths import Lab
from lab.site import up


@pytest.fixture(scope="module")
def cluster_lab(spare_lab: Lab) -> Lab:
    up.bring_up(spare_lab, hgx=0)
    return spare_lab


@pytest.fixture
def core(cluster_lab: Lab) -> Iterator[client.CoreV1Api]:
    with api.connect(cluster_lab) as connection:
        yield client.CoreV1Api(connection)
