"""Emulated machines in a real control plane: their Node objects come, change, go NotReady and come back."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from lab.cluster import network
from lab.cluster.parts import metadata_of, present, spec_of, status_of
from lab.machines.kwok_cluster import KwokCluster
from lab.paths import CHECKOUT, Lab
from talos.api.results import ApplyMode
from talos.factory.schematic import Schematic
from talos.hgx import HGXProfile
from tests.lab.waiting import eventually
from tests.unit.machines.emulated_rack import Bench, new_bench


@pytest.fixture(scope="module")
def bench(cluster_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("machines")
    made = new_bench(folder, "infra", "hgx-h200", cluster=KwokCluster(cluster_lab))
    with made.rack:
        for name in made.rack.machines:
            made.wait_stage(name, "maintenance")
        made.bring_up()
        yield made


def ready(core: client.CoreV1Api, name: str) -> str:
    conditions = status_of(core.read_node(name)).conditions or []
    return next((str(condition.status) for condition in conditions if condition.type == "Ready"), "none")


def labels(core: client.CoreV1Api) -> dict[str, str]:
    return metadata_of(core.read_node("gpu")).labels or {}


def taints(core: client.CoreV1Api) -> list[str]:
    return [taint.key for taint in spec_of(core.read_node("gpu")).taints or ()]


def is_ready(core: client.CoreV1Api, name: str) -> bool:
    return ready(core, name) == "True"


def test_the_nodes_are_ready_with_what_their_configs_imply(bench: Bench, core: client.CoreV1Api) -> None:
    eventually(lambda: is_ready(core, "gpu") and is_ready(core, "cp"))
    gpu: Any = core.read_node("gpu")
    assert gpu.status.allocatable["nvidia.com/gpu"] == "8"
    assert gpu.spec.pod_cidr == "10.244.1.0/24"
    assert gpu.status.node_info.kubelet_version == "v1.36.3"
    assert ("nvidia.com/gpu", "NoSchedule") in [(taint.key, taint.effect) for taint in gpu.spec.taints]
    assert gpu.metadata.labels["nvidia.com/gpu.product"] == "NVIDIA-H200"
    with bench.client("m1") as machine:
        assert yaml.safe_load(machine.kubeconfig())["kind"] == "Config"
    eventually(lambda: bench.rack.machines["m2"].node_is_ready)


def test_a_label_comes_and_goes_with_the_config(bench: Bench, core: client.CoreV1Api) -> None:
    core.patch_node("gpu", {"metadata": {"labels": {"of.somebody/else": "stays"}}})
    for profile, wanted in ((HGXProfile(node_labels={"site.example/rack": "r1"}), "r1"), (HGXProfile(), None)):
        with bench.client("m2") as machine:
            machine.apply_configuration(bench.hgx("gpu", profile), mode=ApplyMode.NO_REBOOT)
        eventually(lambda: labels(core).get("site.example/rack") == wanted)  # noqa: B023
    assert labels(core)["of.somebody/else"] == "stays"


def test_a_reboot_and_a_loss_of_power_show(bench: Bench, core: client.CoreV1Api) -> None:
    before = present(status_of(core.read_node("gpu")).node_info).boot_id
    machine = bench.rack.machines["m2"]
    machine.power_off()
    eventually(lambda: ready(core, "gpu") == "False")
    eventually(lambda: "node.kubernetes.io/not-ready" in taints(core))
    machine.power_on()
    eventually(lambda: is_ready(core, "gpu"))
    node: Any = core.read_node("gpu")
    assert node.status.node_info.boot_id == machine.store.disks.boot_id != before
    eventually(lambda: taints(core) == ["nvidia.com/gpu"])


def test_an_image_without_the_stack_takes_the_gpus_away(bench: Bench, core: client.CoreV1Api) -> None:
    image = bench.installer(Schematic())
    with bench.client("m2") as machine:
        machine.pull_image(image)
        machine.install_upgrade(image)
        machine.reboot()
    eventually(lambda: "nvidia.com/gpu" not in present(status_of(core.read_node("gpu")).allocatable))
    eventually(lambda: "nvidia.com/gpu.count" not in labels(core))


SNAPSHOT = (
    "import sys; from lab.machines.kwok_cluster import KwokCluster; from lab.paths import Lab; "
    "sys.stdout.buffer.write(KwokCluster(Lab.from_environment()).etcd_snapshot())"
)


def test_snapshots_are_of_the_labs_etcd(cluster_lab: Lab) -> None:
    done = subprocess.run(
        network.inside(cluster_lab, [sys.executable, "-c", SNAPSHOT]),
        env=network.environment(cluster_lab),
        cwd=CHECKOUT,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    body, digest = done.stdout[:-32], done.stdout[-32:]
    assert hashlib.sha256(body).digest() == digest
    assert len(body) > 16384
    assert b"/registry/" in body


def test_it_runs_from_the_command_line_inside_the_lab(cluster_lab: Lab, tmp_path: Path) -> None:
    address = cluster_lab.network.node_address(20)
    network.own_address(cluster_lab, address)
    rack = tmp_path / "rack.yaml"
    rack.write_text(
        f"cluster: kwok\nfactory: {{host: {address}, port: 8089}}\n"
        f"machines: [{{name: cp-1, address: {address}, pod_cidr: 198.18.40.0/24}}]\n"
    )
    folder = tmp_path / "machines"
    process = subprocess.Popen(
        network.inside(cluster_lab, [sys.executable, "-m", "lab.machines", "--folder", str(folder), "run", str(rack)]),
        env=network.environment(cluster_lab),
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert f"image factory at http://{address}:8089" in process.stdout.readline()
        shown = subprocess.run(
            [sys.executable, "-m", "lab.machines", "--folder", str(folder), "show"],
            env=network.environment(cluster_lab),
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert '"name": "cp-1", "emulated": true' in shown.stdout
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0
