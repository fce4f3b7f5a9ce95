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
from talos.cluster import MachineSettings
from talos.factory.schematic import Schematic
from talos.hgx import HGXProfile
from talos.secrets import talosconfig, variables
from tests.lab.waiting import eventually
from tests.unit.machines.emulated_rack import Bench, new_bench

TAINT = "site.example/own"
OWN = MachineSettings(
    node_labels={"site.example/rack": "r1"},
    node_annotations={"site.example/disks": "[]"},
    node_taints={TAINT: "a:NoSchedule"},
)


@pytest.fixture(scope="module")
def bench(cluster_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("machines")
    made = new_bench(folder, "infra", "hgx-h200", "infra", cluster=KwokCluster(cluster_lab))
    with made.rack:
        for name in made.rack.machines:
            made.wait_stage(name, "maintenance")
        made.give("m3", made.worker("own", settings=OWN))
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


def own(core: client.CoreV1Api) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Labels, annotations and taints of `own` in the domain of the site."""
    node: Any = core.read_node("own")
    texts = (node.metadata.labels, node.metadata.annotations or {})
    labels, annotations = ({key: text for key, text in held.items() if key.startswith("site.")} for held in texts)
    taints = [f"{taint.key}={taint.value}:{taint.effect}" for taint in node.spec.taints or ()]
    return labels, annotations, [taint for taint in taints if taint.startswith("site.")]


def without_registration(config: bytes) -> bytes:
    """The taints in the machine's half alone, which is all that Talos has a key for."""
    base, *others = yaml.safe_load_all(config)
    del base["machine"]["kubelet"]["extraConfig"]
    return yaml.safe_dump_all([base, *others]).encode()


def roll(bench: Bench, lab: Lab, folder: Path, config: bytes) -> str:
    """`roll` of `own`, as `up` runs it; its progress."""
    machine = bench.rack.machines["m3"]
    files = {"config": config, "talosconfig": login(bench)}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    options = [
        *("--address", machine.address, "--name", "own", "--image", bench.image),
        *(f"--{name}={folder / name}" for name in files),
        *("--timeout", "120s", "--health-timeout", "120s", "--poll", "0.1"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "talos", "roll", *options],
        env={**network.environment(lab), variables.KUBECONFIG: lab.kubeconfig.read_text()},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def login(bench: Bench) -> bytes:
    issued = talosconfig.issue(bench.bundle, context="bench", endpoints=(bench.rack.machines["m1"].address,))
    return issued.render().encode()


def test_a_worker_registers_with_its_taint_and_gets_labels_and_annotations(
    bench: Bench, core: client.CoreV1Api
) -> None:
    stated = ({"site.example/rack": "r1"}, {"site.example/disks": "[]"}, [f"{TAINT}=a:NoSchedule"])
    eventually(lambda: own(core) == stated)
    assert bench.rack.machines["m3"].node_is_ready


def test_the_api_server_holds_a_kubelet_to_its_own_node_and_lets_it_change_no_taint(
    bench: Bench, cluster_lab: Lab
) -> None:
    assert bench.rack.machines["m3"].node_is_ready
    with KwokCluster(cluster_lab).as_kubelet("own") as connection:
        kubelet = client.CoreV1Api(connection)
        refused: dict[str, tuple[str, Any]] = {
            "not allowed to modify taints": ("own", {"spec": {"taints": []}}),
            "not allowed to modify labels": ("own", {"metadata": {"labels": {"node-role.kubernetes.io/gpu": ""}}}),
            "not allowed to modify node": ("gpu", {"metadata": {"labels": {"site.example/a": "b"}}}),
        }
        for message, (name, patch) in refused.items():
            with pytest.raises(client.ApiException, match=message):
                kubelet.patch_node(name, patch)
        with pytest.raises(client.ApiException, match="only its own Node"):
            kubelet.list_node()


def test_a_taint_that_changes_is_refused_with_all_that_came_with_it_until_an_administrator_sets_it(
    bench: Bench, core: client.CoreV1Api, cluster_lab: Lab, tmp_path: Path
) -> None:
    """Talos repeats the update for ever; `roll` sets the taint, and the labels follow."""
    more = MachineSettings(node_labels={"site.example/row": "7"}, node_taints={TAINT: "b:NoExecute"})
    config = bench.worker("own", settings=OWN.joined(more))
    machine = bench.rack.machines["m3"]
    with bench.client("m3") as client_:
        client_.apply_configuration(config, mode=ApplyMode.NO_REBOOT)
    refusal = 'k8s.NodeApplyController: nodes "own" is forbidden: node "own" is not allowed to modify taints'
    eventually(lambda: refusal in machine.store.console.read_text())
    assert own(core)[2] == [f"{TAINT}=a:NoSchedule"]
    assert "site.example/row" not in own(core)[0]

    assert f"own: setting taint {TAINT}=b:NoExecute" in roll(bench, cluster_lab, tmp_path, config)
    assert own(core)[0]["site.example/row"] == "7"
    assert own(core)[2] == [f"{TAINT}=b:NoExecute"]
    assert "taint" not in roll(bench, cluster_lab, tmp_path, config)

    plain = bench.worker("own", settings=MachineSettings(node_labels=OWN.node_labels))
    assert f"own: removing taint {TAINT}=b:NoExecute" in roll(bench, cluster_lab, tmp_path, plain)
    assert own(core) == ({"site.example/rack": "r1"}, {}, [])


def test_a_node_that_registered_without_its_taint_never_gets_its_labels(
    bench: Bench, core: client.CoreV1Api, cluster_lab: Lab, tmp_path: Path
) -> None:
    """What a config with `nodeTaints` alone leads to: a node that is Ready, and has neither taint nor label."""
    config = without_registration(bench.worker("own", settings=OWN))
    machine = bench.rack.machines["m3"]
    machine.power_off()
    core.delete_node("own")
    machine.store.save_config(config)
    machine.store.console.unlink()
    machine.power_on()
    eventually(lambda: machine.node_is_ready and is_ready(core, "own"))
    eventually(lambda: "not allowed to modify taints" in machine.store.console.read_text())
    assert own(core) == ({}, {}, [])
    roll(bench, cluster_lab, tmp_path, config)
    assert own(core) == ({"site.example/rack": "r1"}, {"site.example/disks": "[]"}, [f"{TAINT}=a:NoSchedule"])


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
