"""Local volumes: each emulated node has folders of its own, and only those that its machine has mounted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from lab.paths import Lab
from lab.runner.api import KubeApi
from lab.runner.env import PodFacts
from lab.runner.podfiles import PodFiles, VolumeError

pytestmark = pytest.mark.row("000.20", "003.09")

FACTS = PodFacts(pod_ip="198.18.1.2", host_ip="198.18.0.10", allocatable={})
CONTAINER = {"name": "c", "volumeMounts": [{"name": "w", "mountPath": "/volume", "subPath": "chat"}]}


class OneVolume:
    """An API server with one volume, which every claim is bound to."""

    def __init__(self, source: dict[str, Any]) -> None:
        self._source = source

    async def claim_volume(self, namespace: str, claim: str) -> dict[str, Any]:  # noqa: ARG002 - as the API's
        return {"metadata": {"name": "chat-node"}, "spec": self._source}


def mounted(lab: Lab, node: str, source: dict[str, Any]) -> str:
    """What the pod mounts as its volume."""
    pod = {
        "metadata": {"name": "p", "namespace": "m", "uid": f"on-{node}"},
        "spec": {
            "nodeName": node,
            "containers": [CONTAINER],
            "volumes": [{"name": "w", "persistentVolumeClaim": {"claimName": "chat-node"}}],
        },
    }
    files = PodFiles(lab, cast("KubeApi", OneVolume(source)), pod, lambda *_: None)
    asyncio.run(files.prepare(FACTS))
    return next(mount.source for mount in files.mounts(CONTAINER, {}) if mount.target == "/volume")


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab(home=tmp_path / "lab", cache=tmp_path / "cache")
    for node in ("hgx-1", "hgx-2"):
        lab.node_folder(node, "/var/mnt/weights").mkdir(parents=True)
    return lab


def test_a_local_volume_is_another_folder_on_each_node(lab: Lab) -> None:
    source = {"local": {"path": "/var/mnt/weights"}}
    folders = [mounted(lab, node, source) for node in ("hgx-1", "hgx-2")]
    assert folders == [str(lab.node_folder(node, "/var/mnt/weights/chat")) for node in ("hgx-1", "hgx-2")]
    assert mounted(lab, "hgx-1", source) == folders[0], "pods of one node share it"


@pytest.mark.parametrize("path", ["/var/mnt/other", "/../hgx-2/var/mnt/weights", "/var/mnt/../../../hgx-2/var/mnt"])
def test_a_pod_waits_for_a_folder_that_its_node_does_not_have(lab: Lab, path: str) -> None:
    with pytest.raises(VolumeError, match=r'failed for volume "chat-node": path ".*" does not exist'):
        mounted(lab, "hgx-1", {"local": {"path": path}})
    assert not lab.node_folder("hgx-1", "/var/mnt/other").exists()


def test_a_volume_that_the_lab_cannot_serve_is_named(lab: Lab) -> None:
    with pytest.raises(VolumeError, match='"chat-node" is neither local nor a hostPath'):
        mounted(lab, "hgx-1", {"nfs": {"server": "192.0.2.1", "path": "/"}})
