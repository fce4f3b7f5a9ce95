"""A bare lab: one node, its control plane and the pod runner."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kubernetes import client

from lab.cluster import api
from lab.cluster.parts import name_of
from lab.paths import Lab
from lab.site import down
from tests.lab.cluster_by_hand import bring_up_cluster
from tests.lab.runner.pods import (
    SERVER,
)
from tests.lab.waiting import eventually

_SERIAL = itertools.count(1)


@pytest.fixture(scope="package")
def bare_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("runner")
    tools = Lab.from_environment()
    lab = replace(tools, home=home, index=(tools.index + 2) % 8)
    lab.bin.symlink_to(tools.bin)
    bring_up_cluster(lab, hgx=0)
    yield lab
    down.take_down(lab)
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert f"{lab.prefix}-" not in left


@pytest.fixture
def core(bare_lab: Lab) -> Iterator[client.CoreV1Api]:
    with api.connect(bare_lab) as connection:
        yield client.CoreV1Api(connection)


@pytest.fixture
def namespace(core: client.CoreV1Api) -> Iterator[str]:
    name = f"runner-{next(_SERIAL)}"
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
    eventually(lambda: [a for a in core.list_namespaced_service_account(name).items if name_of(a) == "default"])
    secret, code = client.V1ObjectMeta(name="secret"), client.V1ObjectMeta(name="code")
    core.create_namespaced_secret(name, client.V1Secret(metadata=secret, string_data={"key": "first"}))
    core.create_namespaced_config_map(name, client.V1ConfigMap(metadata=code, data={"server.py": SERVER}))
    yield name
    core.delete_namespace(name)
