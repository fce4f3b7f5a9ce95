"""The lab's own machines, their cluster and the pods on them: what goes down with a machine, and comes back with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from kubernetes import client, config

from components.addons.etcd_backup import cron_job
from components.specs.etcd_backup import EtcdBackupSpec
from lab.cluster import api, controlplane, network, processes
from lab.cluster.parts import name_of, status_of
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import CHECKOUT, Lab
from tests import documented
from tests.lab import s3_server
from tests.lab.cluster_by_hand import ByHand, bring_up_cluster, kubeconfig_of_machine
from tests.lab.machines import simulated_talos_backup
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


def run_by_page(cluster: Lab, folder: Path, command: str) -> None:
    """Run a command of the page in the folder of its files, on the one control plane that is here."""
    plane = ByHand(cluster, hgx=0).addresses[lab_rack.CONTROL_PLANE]
    line = re.sub(r" --peer \S+", "", command).replace("10.5.0.11", plane)
    tools = f"{Path(sys.executable).parent}:{cluster.bin}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-c", line.replace("--etcd-members 3", "--etcd-members 1")],
        cwd=folder,
        env={**os.environ, "PATH": tools, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def backed_up(cluster: Lab, folder: Path, server: str) -> str:
    """What the CronJob of a site puts into its bucket; the object's key. The private key stays in `age.key`."""
    by_hand, login, private = ByHand(cluster, hgx=0), folder / "backup-talosconfig", folder / "age.key"
    login.write_text(by_hand.login("os:etcd:backup"))
    subprocess.run([cluster.bin / "age-keygen", "--output", private], check=True, capture_output=True)
    public = subprocess.check_output([cluster.bin / "age-keygen", "-y", private], text=True).strip()
    spec = EtcdBackupSpec(
        address=f"{server}/etcd/prod", region=s3_server.REGION, keys_secret="etcd-bucket", age_public_key=public
    )
    keys = {"access_key_id": s3_server.KEY_ID, "secret_access_key": s3_server.SECRET}
    job = cron_job(spec, site="prod", image="not run here")
    return simulated_talos_backup.run(
        simulated_talos_backup.variables_of(job, {"etcd-bucket": keys}),
        folder,
        age=cluster.bin / "age",
        take=lambda file: by_hand.talos(
            "etcd-snapshot", lab_rack.CONTROL_PLANE, "--talosconfig", str(login), "--output", str(file)
        ),
    )


def test_a_cluster_is_recovered_from_a_snapshot_on_a_wiped_machine(cluster: Lab, tmp_path: Path) -> None:
    """Out of the bucket that the site's CronJob fills, by the commands of docs/runbooks/recover-etcd.md."""
    (tmp_path / "talosconfig").write_text(ByHand(cluster, hgx=0).login("os:admin"))
    (tmp_path / "s3" / "etcd").mkdir(parents=True)
    early, late = (
        client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data={"of": name}) for name in ("early", "too-late")
    )
    with s3_server.serving(cluster, tmp_path / "s3") as server, api.connect(cluster) as connection:
        core = client.CoreV1Api(connection)
        core.create_namespaced_config_map("default", early)
        key = backed_up(cluster, tmp_path, server)
        core.create_namespaced_config_map("default", late)
        assert re.fullmatch(r"prod/prod-[-\dT:]+Z\.snap\.age", key)
        stored = tmp_path / "s3" / "etcd" / key
        assert b"/registry/" not in stored.read_bytes()

        erase = documented.shell(
            "python -m talos reset --talosconfig talosconfig --address 10.5.0.11 --wipe system-disk "
            "--partition EPHEMERAL --no-graceful"
        )
        run_by_page(cluster, tmp_path, erase)
        assert not controlplane.is_created(cluster)
        fetched = s3_server.call(
            "GET",
            f"{server}/etcd/{quote(key)}",
            key_id=s3_server.KEY_ID,
            secret=s3_server.SECRET,
            region=s3_server.REGION,
        )
    (tmp_path / "prod-2026-11-27T00:17:04Z.snap.age").write_bytes(fetched)
    decrypt = documented.shell(
        "(umask 077; age --decrypt --identity age.key --output etcd.snapshot prod-2026-11-27T00:17:04Z.snap.age)"
    )
    bootstrap = documented.shell(
        "python -m talos bootstrap --talosconfig talosconfig --address 10.5.0.11 --peer cp-2=10.5.0.12 "
        "--peer cp-3=10.5.0.13 --recover etcd.snapshot"
    )
    health = documented.shell("python -m talos health --talosconfig talosconfig --address 10.5.0.11 --etcd-members 3")
    for command in (decrypt, bootstrap, health):
        run_by_page(cluster, tmp_path, command)
    controlplane.wait_ready(cluster, 120)
    with api.connect(cluster) as connection:
        core = client.CoreV1Api(connection)
        eventually(lambda: ready(core, "cp-1") and ready(core, "hgx-1"))
        listed = core.list_namespaced_config_map("default").items
    contents = {name_of(config_map): config_map.data for config_map in listed}
    assert contents["early"] == {"of": "early"}
    assert "too-late" not in contents


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
