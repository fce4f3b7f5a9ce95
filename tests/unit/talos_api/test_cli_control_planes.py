"""`leave` of control planes that can or cannot speak for themselves, and kubelets that wait for API servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from talos.api.errors import AbsentError, MachineApiError, NotOfferedError
from tests.unit.machines.emulated_rack import Bench, eventually, new_bench
from tests.unit.talos_api.emulated_site import Kubectl, Site

pytestmark = [pytest.mark.processes, pytest.mark.row("000.11")]

PLANES = {"m1": "cp-1", "m2": "cp-2", "m3": "cp-3"}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Three control planes and a worker."""
    made = new_bench(tmp_path / "machines", "infra", "infra", "infra", "infra")
    monkeypatch.setenv("TALOS_SECRETS_TEXT", made.bundle.export())
    with made.rack:
        for machine in made.rack.machines:
            made.wait_stage(machine, "maintenance")
            plane = PLANES.get(machine)
            made.give(machine, made.control_plane(plane) if plane else made.worker("worker"))
        eventually(lambda: made.rack.machines["m1"].cri_up)
        with made.client("m1") as client:
            client.bootstrap()
        eventually(lambda: all(machine.node_is_ready for machine in made.rack.machines.values()))
        yield made


@pytest.fixture
def kubectl(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    made = Kubectl(tmp_path / "kubectl", *PLANES.values(), "worker").follow(bench.cluster)
    for machine, name in PLANES.items():
        made.plane(name, bench.rack.machines[machine].address, "v1.36.3")
    monkeypatch.setenv("PATH", f"{made.folder}:{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG_TEXT", "canary-kubeconfig")
    return made


@pytest.fixture
def site(bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Site:
    return Site(bench, capsys, tmp_path, {**PLANES, "m4": "worker"})


def members(bench: Bench, by: str = "m1") -> list[str]:
    with bench.client(by) as client:
        return sorted(member.hostname for member in client.etcd_members())


def test_a_dead_control_plane_is_forgotten_by_etcd_once(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bench.rack.machines["m3"].power_off()
    assert members(bench) == ["cp-1", "cp-2", "cp-3"]
    left = site("leave", "m3", "--dead")
    assert (left["left"], left["etcd_member_removed"]) == ("dead", True)
    assert members(bench) == ["cp-1", "cp-2"]
    assert kubectl.calls() == ["delete"]
    assert site("leave", "m3", "--dead")["etcd_member_removed"] is False
    # It was marked dead but was not: its data is useless until it is erased.
    returned = bench.rack.machines["m3"]
    returned.power_on()
    eventually(lambda: returned.cri_up)
    assert not returned.etcd_up
    assert members(bench) == ["cp-1", "cp-2"]
    assert site("reset", "m3", "--wipe", "system-disk", "--partition", "EPHEMERAL", "--no-graceful")
    eventually(lambda: returned.etcd_up)
    assert members(bench) == ["cp-1", "cp-2", "cp-3"]


def test_a_control_plane_that_leaves_in_order_speaks_for_itself(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    left = site("leave", "m3")
    assert (left["left"], left["etcd_member_removed"]) == ("done", False)
    assert members(bench) == ["cp-1", "cp-2"]
    assert kubectl.calls() == ["annotate", "cordon", "drain", "delete"]


def test_a_dead_worker_is_no_member(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    bench.rack.machines["m4"].power_off()
    assert site("leave", "m4", "--dead")["etcd_member_removed"] is False
    assert members(bench) == ["cp-1", "cp-2", "cp-3"]


def test_without_a_majority_nobody_is_forgotten(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    for machine in ("m2", "m3"):
        bench.rack.machines[machine].power_off()
    answer = site("leave", "m3", "--dead", "--timeout", "3s", code=4)
    assert "cp-3: waited" in answer
    assert "no control plane could list the members of etcd" in answer
    assert "cp-1: " in answer
    assert "cp-2: " in answer
    assert kubectl.calls() == []


def test_etcd_is_recovered_on_the_control_plane_that_is_left(
    bench: Bench, site: Site, kubectl: Kubectl, tmp_path: Path
) -> None:
    """The first one and another never come back: the runbook's steps on the third, and other hardware for the first."""
    snapshot, machines = tmp_path / "etcd.snapshot", bench.rack.machines
    site("etcd-snapshot", "m1", "--output", str(snapshot))
    for lost in ("m1", "m2"):
        machines[lost].power_off()
    assert site("reset", "m3", "--wipe", "system-disk", "--partition", "EPHEMERAL", "--no-graceful")["reset"] == "done"
    assert site("bootstrap", "m3", "--recover", str(snapshot))["bootstrap"] == "done"
    assert bench.cluster.recovered == snapshot.read_bytes()
    assert members(bench, by="m3") == ["cp-3"]
    assert site("health", "m3", "--etcd-members", "1")["healthy"]

    assert site("leave", "m1", "--dead")["etcd_member_removed"] is False
    assert kubectl.calls() == ["delete"]
    machines["m1"].wipe(state=True, ephemeral=True, system=True)
    machines["m1"].power_on()
    bench.wait_stage("m1", "maintenance")
    site("apply", "m1", "--mode", "auto", "--insecure", config=bench.control_plane("cp-1"))
    site("health", "m3", "--etcd-members", "2")
    assert members(bench) == ["cp-1", "cp-3"]
    # The other one holds a part of the cluster that was lost.
    machines["m2"].power_on()
    eventually(lambda: machines["m2"].cri_up)
    assert not machines["m2"].etcd_up


def test_what_etcd_says_of_members_that_cannot_go(bench: Bench) -> None:
    with bench.client("m1") as client:
        ids = {member.hostname: member.id for member in client.etcd_members()}
        with pytest.raises(AbsentError, match="member not found"):
            client.etcd_remove_member(1)
        bench.rack.machines["m3"].power_off()
        with pytest.raises(MachineApiError, match="unhealthy cluster"):
            client.etcd_remove_member(ids["cp-2"])
    with bench.client("m4") as client, pytest.raises(NotOfferedError):
        client.etcd_remove_member(ids["cp-3"])


def test_an_api_server_goes_over_no_minor_version(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    """Kubernetes' own rule; the program asked etcd's only reader to skip a migration."""
    image = ("--image", bench.image)
    plane = bench.control_plane("cp-1", image=bench.image)
    kubectl.plane("cp-1", bench.rack.machines["m1"].address, "v1.34.7")
    far = plane.replace(b"kube-apiserver:v1.36.3", b"kube-apiserver:v1.36.4")
    planned = site("plan", "m1", *image, config=far)
    assert planned["change"] == "refused"
    assert "its API server is v1.34.7 and does not become v1.36.4 in one step" in planned["says"]
    assert "the newest v1.35" in planned["says"]
    before = bench.rack.machines["m1"].store.config
    assert "the newest v1.35" in site("roll", "m1", *image, config=far, code=3)
    assert bench.rack.machines["m1"].store.config == before


@pytest.mark.exhaustive
def test_no_kubelet_gets_ahead_of_an_api_server(bench: Bench, site: Site, kubectl: Kubectl) -> None:
    image = ("--image", bench.image)
    plane = bench.control_plane("cp-1", image=bench.image)
    worker = bench.worker("worker", image=bench.image)

    def bumped(config: bytes, *programs: str) -> bytes:
        for program in programs:
            config = config.replace(f"{program}:v1.36.3".encode(), f"{program}:v1.37.0".encode())
        return config

    before = bench.rack.machines["m1"].store.config
    both = bumped(plane, "kubelet", "kube-apiserver")
    planned = site("plan", "m1", *image, config=both)
    assert planned["change"] == "refused"
    assert "cp-1: its kubelet would be 1.37 with API servers of v1.36.3 on cp-2, v1.36.3 on cp-3" in planned["says"]
    assert "`kubelet` in stacks/facts/versions.yaml" in planned["says"]
    assert "v1.36.3 on cp-2" in site("roll", "m1", *image, config=both, code=3)
    assert bench.rack.machines["m1"].store.config == before

    # The kubelet stays: the control plane may move, and is waited for.
    held = bumped(plane, "kube-apiserver")
    assert site("plan", "m1", *image, config=held)["change"] == "live"
    # Each look starts a kubectl, so where a wait must run out there are few.
    roll, few = ("roll", "m1", *image, "--health-timeout", "2s"), ("--poll", "0.5")
    assert "its API server is v1.36.3 still" in site(*roll, *few, config=held, code=4)
    kubectl.plane("cp-1", bench.rack.machines["m1"].address, "v1.37.0")
    site(*roll, config=held)

    # A worker waits for the last of them.
    newer = bumped(worker, "kubelet")
    assert site("plan", "m4", *image, config=newer)["change"] == "live"
    kubectl.plane("cp-2", bench.rack.machines["m2"].address, "v1.37.0")
    answer = site("roll", "m4", *image, *few, "--timeout", "3s", config=newer, code=4)
    assert "its kubelet would be 1.37, and there are API servers of v1.36.3 on cp-3" in answer
    kubectl.plane("cp-3", bench.rack.machines["m3"].address, "v1.37.0")
    site("roll", "m4", *image, config=newer)
    assert bench.cluster.nodes["worker"].kubelet_version == "v1.37.0"
    site("roll", "m1", *image, config=both)
    assert bench.cluster.nodes["cp-1"].kubelet_version == "v1.37.0"


def test_a_machine_is_neither_renamed_nor_erased_in_the_place_of_a_former_name(
    bench: Bench, site: Site, kubectl: Kubectl
) -> None:
    """A node with another name in the site: `up` first rolls the new one, and then the old one leaves."""
    renamed = bench.control_plane("cp-4")
    plan = site("plan", "m3", "--image", bench.image, "--insecure", config=renamed)
    assert (plan["change"], plan["reason"].partition(":")[0]) == ("refused", "it runs as the node cp-3, not as cp-4")
    site("roll", "m3", "--image", bench.image, "--insecure", config=renamed, code=3)
    assert site("leave", "m3", "--name", "former")["left"] == "other"
    assert kubectl.calls() == ["delete"]
    worker = bench.control_plane("cp-3").replace(b"type: controlplane", b"type: worker")
    plan = site("plan", "m3", "--image", bench.image, "--insecure", config=worker)
    assert (plan["change"], plan["reason"].partition(":")[0]) == (
        "refused",
        "it runs as a controlplane, not as a worker",
    )
    assert bench.rack.machines["m3"].stage == "running"
    assert members(bench) == ["cp-1", "cp-2", "cp-3"]
