"""The lab's own machines, their cluster and the pods on them: what goes down with a machine, and comes back with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from lab.cluster import api, controlplane, network, processes
from lab.cluster.parts import name_of, status_of
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import Lab
from tests.lab.cluster_by_hand import ByHand, bring_up_cluster, kubeconfig_of_machine
from tests.lab.waiting import eventually

POD: dict[str, Any] = {
    "metadata": {"name": "sleeper"},
    "spec": {
        "nodeSelector": {"kubernetes.io/hostname": "hgx-1"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "main",
                "image": "docker.io/library/python:3.11",
                "command": ["python3", "-c", "import time; time.sleep(3600)"],
            }
        ],
    },
}


@pytest.fixture(scope="module")
def cluster(spare_lab: Lab) -> Lab:
    bring_up_cluster(spare_lab, hgx=1)
    return spare_lab


@pytest.fixture
def core(cluster: Lab) -> Iterator[client.CoreV1Api]:
    with api.connect(cluster) as connection:
        yield client.CoreV1Api(connection)


def tell(lab: Lab, machine: str, action: str) -> dict[str, Any]:
    (shown,) = ask(lab_rack.folder(lab), {"machine": machine, "action": action})
    return shown


def ready(core: client.CoreV1Api, node: str) -> bool:
    conditions = status_of(core.read_node(node)).conditions or []
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)


def main_container(core: client.CoreV1Api) -> Any:
    statuses = status_of(core.read_namespaced_pod("sleeper", "default")).container_statuses
    return statuses[0] if statuses else None


def runs(core: client.CoreV1Api, restarts: int) -> bool:
    status = main_container(core)
    return bool(status and status.ready and status.restart_count == restarts)


def test_the_kubeconfig_of_the_machine_api_opens_the_cluster_from_the_host(cluster: Lab) -> None:
    with config.new_client_from_config(config_file=str(kubeconfig_of_machine(cluster))) as connection:
        assert connection.configuration.host == f"https://{cluster.network.node_address(0)}:6443"
        nodes = client.CoreV1Api(connection).list_node().items
    assert sorted(name_of(node) for node in nodes) == ["cp-1", "hgx-1"]


def test_a_machine_that_the_site_does_not_name_stays_in_maintenance_mode(cluster: Lab) -> None:
    assert tell(cluster, "hgx-2", "show")["stage"] == "maintenance"


def test_pods_end_with_their_machine_and_begin_again_with_it(cluster: Lab, core: client.CoreV1Api) -> None:
    eventually(lambda: core.read_namespaced_service_account("default", "default"))
    core.create_namespaced_pod("default", client.V1Pod.model_validate(POD))
    eventually(lambda: runs(core, restarts=0))
    tell(cluster, "hgx-1", "off")
    eventually(lambda: not ready(core, "hgx-1"))

    def is_not_ready() -> bool:
        conditions = status_of(core.read_namespaced_pod("sleeper", "default")).conditions or []
        return any(condition.type == "Ready" and condition.status == "False" for condition in conditions)

    eventually(is_not_ready)
    tell(cluster, "hgx-1", "on")
    eventually(lambda: runs(core, restarts=1))
    assert main_container(core).last_state.terminated.reason == "ContainerStatusUnknown"


def test_the_only_control_plane_takes_the_api_down_and_brings_it_back(cluster: Lab, core: client.CoreV1Api) -> None:
    core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="kept")))
    tell(cluster, "cp-1", "off")
    eventually(lambda: not controlplane.is_ready(cluster))
    etcd = next(component for component in controlplane.components(cluster) if component.name == "etcd")
    eventually(lambda: etcd.pid() is None)
    assert tell(cluster, "hgx-1", "show")["stage"] == "running"
    tell(cluster, "cp-1", "on")
    eventually(lambda: controlplane.is_ready(cluster))
    assert core.read_namespaced_config_map("kept", "default")
    eventually(lambda: ready(core, "cp-1") and ready(core, "hgx-1"))


def test_a_cluster_is_recovered_from_a_snapshot_on_a_wiped_machine(cluster: Lab, tmp_path: Path) -> None:
    by_hand, snapshot = ByHand(cluster, hgx=0), tmp_path / "etcd.db"
    by_hand.talos("etcd-snapshot", "cp-1", "--output", str(snapshot))
    with api.connect(cluster) as connection:
        late = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="too-late"))
        client.CoreV1Api(connection).create_namespaced_config_map("default", late)
    by_hand.talos("reset", "cp-1", "--wipe", "all", "--no-graceful")
    by_hand.apply("cp-1")
    by_hand.talos("bootstrap", "cp-1", "--recover", str(snapshot))
    controlplane.wait_ready(cluster, 120)
    with api.connect(cluster) as connection:
        core = client.CoreV1Api(connection)
        eventually(lambda: ready(core, "cp-1") and ready(core, "hgx-1"))
        names = {name_of(config_map) for config_map in core.list_namespaced_config_map("default").items}
    assert "kept" in names
    assert "too-late" not in names


def left_running(lab: Lab) -> list[str]:
    """Programs in the lab's network other than what runs without a cluster."""
    lines = [processes.command_line(pid) for pid in network.namespace_processes(lab)]
    always = ("lab.site.guard", "lab.site.supervisor", "lab.machines", "lab.hub")
    return [" ".join(line) for line in lines if line and not set(always) & set(line)]


def test_wiping_the_only_control_plane_ends_the_cluster_and_another_can_be_made(cluster: Lab) -> None:
    by_hand = ByHand(cluster, hgx=0)
    by_hand.talos("reset", "cp-1", "--wipe", "all", "--no-graceful")
    assert tell(cluster, "cp-1", "show")["stage"] == "maintenance"
    assert not controlplane.is_created(cluster)
    assert not cluster.kubeconfig.exists()
    eventually(lambda: left_running(cluster) == [])
    by_hand.bootstrap()
    with api.connect(cluster) as connection:
        core = client.CoreV1Api(connection)
        eventually(lambda: [name_of(node) for node in core.list_node().items] == ["cp-1"])
        assert "kept" not in [name_of(config_map) for config_map in core.list_namespaced_config_map("default").items]
