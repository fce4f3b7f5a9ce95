"""What machines do together: etcd, nodes, passing calls on, upgrades, resets."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from talos.api.errors import AbsentError, AlreadyDoneError, MachineApiError, NotOfferedError, NotReadyError
from talos.api.results import ApplyMode, WipeMode
from talos.cluster import MachineSettings
from talos.factory.schematic import Schematic
from talos.hgx import HGXProfile
from tests.unit.machines.emulated_rack import HOUR_S, VERSION, Bench, eventually, new_bench

pytestmark = pytest.mark.processes


def test_the_config_and_schematic_make_the_node(running: Bench) -> None:
    gpu, plane = running.cluster.nodes["gpu"], running.cluster.nodes["cp"]
    assert gpu.capacity["nvidia.com/gpu"] == "8"
    assert gpu.kubelet_version == "v1.36.3"
    assert gpu.pod_cidr == "10.244.1.0/24"
    assert (
        [taint.wire() for taint in gpu.registers_with]
        == [taint.wire() for taint in gpu.taints]
        == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    )
    assert gpu.gpu_labels["nvidia.com/gpu.count"] == "8"
    assert gpu.gpu_labels["nvidia.com/cuda.driver-version.full"] == "595.91.07"
    assert "nvidia.com/gpu" not in plane.capacity
    assert not plane.gpu_labels
    assert [taint.key for taint in plane.taints] == ["node-role.kubernetes.io/control-plane"]
    assert [plan.endpoint for plan in running.cluster.planes] == [running.spec().endpoint]


def test_gpus_are_cut_by_the_nodes_label_without_a_reboot(running: Bench) -> None:
    """And whole again by the layout of whole ones. It is what MIG manager and device plugin do; nothing is cut."""
    profile = HGXProfile()
    boot = running.rack.machines["m2"].store.disks.boot_id

    def label(layout: str) -> None:
        cut = MachineSettings(node_labels={"nvidia.com/mig.config": layout})
        image = running.installer(Schematic(extensions=profile.extensions), VERSION)
        config = running.worker("gpu", settings=profile.settings().joined(cut), image=image)
        with running.client("m2") as client:
            client.apply_configuration(config, mode=ApplyMode.AUTO)

    label("all-1g.18gb")
    eventually(lambda: running.cluster.nodes["gpu"].capacity.get("nvidia.com/mig-1g.18gb") == "56")
    assert running.cluster.nodes["gpu"].capacity["nvidia.com/gpu"] == "0"
    label("all-disabled")
    eventually(lambda: running.cluster.nodes["gpu"].capacity["nvidia.com/gpu"] == "8")
    assert "nvidia.com/mig-1g.18gb" not in running.cluster.nodes["gpu"].capacity
    assert running.rack.machines["m2"].store.disks.boot_id == boot


def test_bootstrap_comes_neither_too_early_nor_twice(bench: Bench, hour: threading.Event) -> None:
    machine = bench.rack.machines["m1"]
    machine.speed = replace(machine.speed, services_s=HOUR_S)
    bench.give("m1", bench.control_plane("cp"))
    eventually(lambda: machine.stage == "booting" and machine.forwards_calls)
    with bench.client("m1") as client:
        with pytest.raises(NotReadyError, match="not available yet"):
            client.bootstrap()
        assert client.machine_status().stage == "booting"
        hour.set()
        eventually(lambda: machine.cri_up)
        assert "etcd not running" in str(client.machine_status().unmet)
        client.bootstrap()
        with pytest.raises(AlreadyDoneError, match="not empty"):
            client.bootstrap()
    bench.wait_stage("m1", "running")


def test_workers_say_what_only_control_planes_do(running: Bench) -> None:
    with running.client("m2") as client:
        for call in (client.bootstrap, client.kubeconfig, client.etcd_members):
            with pytest.raises(NotOfferedError, match="only available on control plane nodes"):
                call()


def test_further_control_planes_join_etcd_by_themselves(tmp_path: Path) -> None:
    bench = new_bench(tmp_path, "infra", "infra", "infra")
    with bench.rack:
        for name in bench.rack.machines:
            bench.wait_stage(name, "maintenance")
            bench.give(name, bench.control_plane(f"cp-{name}"))
        eventually(lambda: bench.rack.machines["m1"].cri_up)
        with bench.client("m1") as client:
            with pytest.raises(MachineApiError):
                client.etcd_members()
            client.bootstrap()
            eventually(lambda: all(machine.etcd_up for machine in bench.rack.machines.values()))
            assert sorted(member.hostname for member in client.etcd_members()) == ["cp-m1", "cp-m2", "cp-m3"]
            bench.rack.machines["m2"].power_off()
            assert len(client.etcd_members()) == 3
            bench.rack.machines["m3"].power_off()
            with pytest.raises(MachineApiError, match="no leader"):
                client.etcd_members()


def test_a_control_plane_passes_calls_on(running: Bench) -> None:
    worker = running.rack.machines["m2"]
    with running.client("m1", forward_to=worker.address) as client:
        assert client.boot_id() == worker.store.disks.boot_id
        with pytest.raises(NotOfferedError):
            client.etcd_members()
    with running.client("m1", forward_to="127.9.9.9") as client, pytest.raises(MachineApiError, match="no such host"):
        client.version()
    with running.client("m2", forward_to=worker.address) as client:
        assert client.version().tag


def test_snapshots_are_whole_and_can_be_recovered_from(running: Bench) -> None:
    with running.client("m1") as client:
        snapshot = b"".join(client.etcd_snapshot())
        assert hashlib.sha256(snapshot[:-32]).digest() == snapshot[-32:]
        client.reset(wipe=WipeMode.SYSTEM_DISK, graceful=True, reboot=True)
    running.wait_stage("m1", "maintenance")
    running.give("m1", running.control_plane("cp"))
    eventually(lambda: running.rack.machines["m1"].cri_up)
    with running.client("m1") as client:
        client.etcd_recover([snapshot[:1000], snapshot[1000:-1] + b"x"])
        with pytest.raises(MachineApiError, match="sha256"):
            client.bootstrap(recover_etcd=True)
        client.etcd_recover([snapshot])
        client.bootstrap(recover_etcd=True)
    assert running.cluster.recovered == snapshot


def test_an_upgrade_takes_effect_with_the_reboot(running: Bench) -> None:
    image = running.installer(Schematic(extensions=HGXProfile().extensions), "v1.13.8")
    with running.client("m2") as client:
        with pytest.raises(MachineApiError, match="not found in containerd store"):
            client.install_upgrade(image)
        name = client.pull_image(image)
        assert name == client.pull_image(image)
        client.install_upgrade(image)
        assert client.version().tag == "v1.13.9"
        client.reboot()
    eventually(lambda: running.cluster.nodes["gpu"].os_image == "Talos (v1.13.8), emulated")
    assert running.cluster.nodes["gpu"].capacity["nvidia.com/gpu"] == "8"
    running.wait_stage("m2", "running")
    with running.client("m2") as client:
        assert client.version().tag == "v1.13.8"
        assert client.extensions()[-1].version == image.split("/")[2].partition(":")[0]


def test_a_version_that_does_not_exist_is_not_found(running: Bench) -> None:
    with running.client("m2") as client, pytest.raises(AbsentError, match="not found"):
        client.pull_image(running.installer(Schematic(), "v1.99.0"))


def test_a_registry_outside_the_lab_is_never_asked(running: Bench) -> None:
    with running.client("m2") as client:
        for host in ("registry.example", "192.0.2.1:5000"):
            with pytest.raises(MachineApiError, match="no such host"):
                client.pull_image(f"{host}/metal-installer/x:v1.13.9")


def test_the_legacy_upgrade_does_it_in_one_call(running: Bench) -> None:
    with running.client("m2") as client:
        assert client.upgrade_legacy(running.installer(Schematic(), "v1.13.7"))
    eventually(lambda: running.cluster.nodes["gpu"].os_image == "Talos (v1.13.7), emulated")
    eventually(lambda: not running.cluster.cordoned)


def test_a_reset_machine_is_in_maintenance_and_its_node_not_ready(running: Bench) -> None:
    with running.client("m2") as client:
        client.reset(wipe=WipeMode.ALL, graceful=True, reboot=True)
    running.wait_stage("m2", "maintenance")
    assert "gpu" in running.cluster.not_ready
    assert "gpu" in running.cluster.nodes
    machine = running.rack.machines["m2"]
    assert machine.store.config is None
    assert machine.store.disks.installed is None


def test_a_rack_that_was_killed_comes_back_as_it_was(running: Bench, tmp_path: Path) -> None:
    before = running.rack.machines["m2"].store.disks
    addresses = [machine.address for machine in running.rack.machines.values()]
    running.rack.machines["m1"].power_off()
    running.rack.stop()
    again = new_bench(running.rack.folder, "infra", "hgx-h200", addresses=addresses)
    again.bundle = running.bundle
    with again.rack:
        assert again.rack.machines["m1"].stage == "unknown"
        assert again.rack.machines["m1"].store.disks.etcd is not None
        again.rack.machines["m1"].power_on()
        eventually(lambda: {"cp", "gpu"} <= set(again.cluster.nodes))
        after = again.rack.machines["m2"].store.disks
        assert after.installed == before.installed
        assert after.boot_id == before.boot_id, "it has been on all the time"


def test_the_control_plane_goes_and_comes_with_its_only_machine(running: Bench) -> None:
    machine = running.rack.machines["m1"]
    assert running.cluster.running
    machine.power_off()
    assert not running.cluster.running
    machine.power_on()
    eventually(lambda: running.cluster.running)
    running.wait_stage("m1", "running")


def test_wiping_the_last_member_of_etcd_ends_the_cluster(running: Bench) -> None:
    with running.client("m1") as client:
        client.reset(wipe=WipeMode.ALL, graceful=True, reboot=True)
    running.wait_stage("m1", "maintenance")
    assert running.cluster.wiped == 1
    assert not running.cluster.nodes
    running.give("m1", running.control_plane("cp"))
    eventually(lambda: running.rack.machines["m1"].cri_up)
    with running.client("m1") as client:
        client.bootstrap()
    eventually(lambda: "cp" in running.cluster.nodes)


def test_a_worker_that_is_wiped_leaves_the_cluster_alone(running: Bench) -> None:
    with running.client("m2") as client:
        client.reset(wipe=WipeMode.ALL, graceful=True, reboot=True)
    running.wait_stage("m2", "maintenance")
    assert running.cluster.wiped == 0
    assert running.cluster.running


def test_one_of_three_control_planes_may_go(tmp_path: Path) -> None:
    bench = new_bench(tmp_path, "infra", "infra", "infra")
    with bench.rack:
        for number in (1, 2, 3):
            bench.wait_stage(f"m{number}", "maintenance")
            bench.give(f"m{number}", bench.control_plane(f"cp-{number}"))
        eventually(lambda: bench.rack.machines["m1"].cri_up)
        with bench.client("m1") as client:
            client.bootstrap()
        machines = bench.rack.machines.values()
        eventually(lambda: all(machine.node_is_ready for machine in machines))
        bench.rack.machines["m1"].power_off()
        assert bench.cluster.running
        bench.rack.machines["m2"].power_off()
        assert not bench.cluster.running
