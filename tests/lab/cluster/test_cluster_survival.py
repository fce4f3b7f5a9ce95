"""What the emulated cluster survives, and what is left of it: nothing."""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from kubernetes import client

from lab.cluster import api, controlplane, network, processes
from lab.cluster.component import Component
from lab.cluster.parts import name_of, present, spec_of, status_of
from lab.errors import LabError
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import CHECKOUT, Lab
from lab.site import down, guard, supervisor, up
from tests.lab.cluster.cluster_checks import balanced_service
from tests.lab.cluster_by_hand import bring_up_cluster
from tests.lab.machine_state import left_behind, machine_state
from tests.lab.waiting import eventually

# Seeds of the orders of dying that are tried.
ORDERS = (1, 2, 65)
POD_RUNNER, SUPERVISOR = "pod-runner", "supervisor"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok-controller",
    "kube-proxy",
    "assigner",
    "machines",
)


@pytest.mark.parametrize("name", COMPONENTS)
def test_killed_component_comes_back(cluster: Lab, name: str) -> None:
    component = next(c for c in supervisor.components(cluster) if c.name == name)
    before = eventually(component.pid)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: component.pid() not in {None, before})
    eventually(lambda: controlplane.is_ready(cluster))


def test_assigner_still_works_after_the_api_server_was_killed(
    cluster: Lab, core: client.CoreV1Api, namespace: str
) -> None:
    component = next(c for c in supervisor.components(cluster) if c.name == "kube-apiserver")
    os.kill(eventually(component.pid), signal.SIGKILL)
    eventually(lambda: controlplane.is_ready(cluster))
    balanced_service(core, namespace, "later")


def processes_of(lab: Lab) -> dict[str, int | None]:
    return {c.name: c.pid() for c in supervisor.components(lab) if c.name in COMPONENTS}


def test_second_up_starts_nothing_anew(cluster: Lab) -> None:
    eventually(lambda: None not in processes_of(cluster).values())
    before = processes_of(cluster)
    bring_up_cluster(cluster, hgx=2)
    assert processes_of(cluster) == before


def component_of(lab: Lab, name: str) -> Component:
    return next(component for component in supervisor.components(lab) if component.name == name)


def supervisor_is_another(lab: Lab, killed: int) -> bool:
    return guard.pid(lab) not in {None, killed}


def test_killed_supervisor_comes_back_by_itself_and_takes_over(cluster: Lab) -> None:
    eventually(lambda: None not in processes_of(cluster).values())
    for _ in range(2):
        before = processes_of(cluster)
        killed = eventually(lambda: guard.pid(cluster))
        os.kill(killed, signal.SIGKILL)
        eventually(partial(supervisor_is_another, cluster, killed))
        assert processes_of(cluster) == before
    watching = eventually(component_of(cluster, supervisor.GUARD).pid)
    os.kill(watching, signal.SIGKILL)
    eventually(lambda: component_of(cluster, supervisor.GUARD).pid() not in {None, watching})


@pytest.mark.exhaustive
def test_up_replaces_supervisor_and_guard_killed_at_once(cluster: Lab) -> None:
    eventually(lambda: None not in processes_of(cluster).values())
    before = processes_of(cluster)
    both = [eventually(component_of(cluster, supervisor.GUARD).pid), eventually(lambda: guard.pid(cluster))]
    for pid in both:
        os.kill(pid, signal.SIGKILL)
    bring_up_cluster(cluster, hgx=2)
    eventually(lambda: guard.pid(cluster) not in {None, both[1]})
    eventually(lambda: component_of(cluster, supervisor.GUARD).pid() not in {None, both[0]})
    assert processes_of(cluster) == before


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", ["everything killed", "namespace without its name"])
def test_up_mends_a_damaged_lab_and_keeps_its_objects(
    cluster: Lab, core: client.CoreV1Api, namespace: str, damage: str
) -> None:
    core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="kept")))
    if damage == "everything killed":
        for pid in network.namespace_processes(cluster):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    else:
        subprocess.run(["ip", "netns", "del", cluster.namespace], check=True)
    bring_up_cluster(cluster, hgx=2)
    assert core.read_namespaced_config_map("kept", namespace)
    eventually(lambda: None not in processes_of(cluster).values())


def stages(lab: Lab) -> dict[str, str]:
    shown = ask(lab_rack.folder(lab), {"machine": "all", "action": "show"})
    return {machine["name"]: machine["stage"] for machine in shown}


@pytest.mark.exhaustive
def test_up_changes_the_number_of_machines_and_reboots_none(cluster: Lab, core: client.CoreV1Api) -> None:
    def boots() -> set[str]:
        return {present(status_of(node).node_info).boot_id for node in core.list_node().items}

    before = boots()
    up.bring_up(cluster, hgx=4)
    assert stages(cluster)["hgx-4"] == "maintenance"
    eventually(lambda: stages(cluster)["hgx-1"] == stages(cluster)["cp-1"] == "running")
    assert boots() == before
    up.bring_up(cluster, hgx=3)
    assert "hgx-4" not in stages(cluster)
    assert boots() == before


def test_lab_of_another_folder_is_refused_with_its_name(cluster: Lab, tmp_path: Path) -> None:
    other = replace(cluster, home=tmp_path)
    for command in (up.bring_up, down.take_down):
        with pytest.raises(LabError, match=f"already runs on this machine, from {cluster.home}") as refused:
            command(other)
        assert f"LAB_HOME={cluster.home}" in refused.value.fix
    eventually(lambda: controlplane.is_ready(cluster))


def namespaces(lab: Lab) -> set[str]:
    with api.connect(lab) as connection:
        return {name_of(namespace) for namespace in client.CoreV1Api(connection).list_namespace().items}


@pytest.mark.exhaustive
def test_up_starts_afresh_after_a_creation_that_was_killed(cluster: Lab) -> None:
    with api.connect(cluster) as connection:
        first = client.V1Namespace(metadata=client.V1ObjectMeta(name="of-the-first"))
        client.CoreV1Api(connection).create_namespace(first)
    machines = next(c for c in supervisor.components(cluster) if c.name == supervisor.MACHINES)
    for pid in (eventually(lambda: guard.pid(cluster)), eventually(machines.pid)):
        os.kill(pid, signal.SIGKILL)
    (controlplane.work_folder(cluster) / "created").unlink()
    cluster.kubeconfig.unlink()
    up.bring_up(cluster, hgx=3)
    eventually(lambda: controlplane.is_created(cluster) and controlplane.is_ready(cluster))
    assert "of-the-first" not in namespaces(cluster)
    eventually(lambda: None not in processes_of(cluster).values())


def start_pods(lab: Lab) -> None:
    """Pods of root and of another user, of their own network and of the node's; some start when the killing begins."""
    program = ["python3", "-c", "import subprocess; subprocess.run(['sleep', '600'])"]
    with api.connect(lab) as connection:
        core = client.CoreV1Api(connection)
        eventually(lambda: core.read_namespaced_service_account("default", "default"))
        for number, (user, host) in enumerate([(0, False), (65532, False), (65532, True), (65532, False)]):
            container = {"name": "main", "image": "python:3.11", "command": program}
            spec = {"containers": [container], "hostNetwork": host, "securityContext": {"runAsUser": user}}
            pod = client.V1Pod.model_validate({"metadata": {"name": f"pod-{number}"}, "spec": spec})
            core.create_namespaced_pod("default", pod)

        def running() -> bool:
            pods = core.list_namespaced_pod("default").items
            return any(status_of(pod).phase == "Running" and not spec_of(pod).host_network for pod in pods)

        eventually(running)


@dataclass(frozen=True, kw_only=True)
class Deaths:
    """An order by chance in which parts of a lab die, with pauses in which others bring them back."""

    order: tuple[tuple[str, float], ...]
    """Name of a part, and the pause after its death in seconds."""
    networks_lost: float
    """Share of the pods' networks that lose their names afterwards."""

    @classmethod
    def of(cls, seed: int) -> Deaths:
        dice = random.Random(seed)  # noqa: S311 - dice
        parts = [*COMPONENTS, supervisor.GUARD, POD_RUNNER, SUPERVISOR]
        dice.shuffle(parts)
        order = [(part, dice.choice((0, 0, 1)) * dice.random() * 2) for part in parts[: dice.randint(3, len(parts))]]
        return cls(order=tuple(order), networks_lost=dice.choice((0.0, 0.5, 1.0)))

    @property
    def leaves_pods_alone(self) -> bool:
        """Whether neither a parent nor a name leads to the pods: nothing restarts what dies after these two."""
        parts = [part for part, _ in self.order]
        if POD_RUNNER not in parts or self.networks_lost < 1:
            return False
        pairs = zip(self.order, self.order[1:], strict=False)
        together = [
            place
            for place, (this, after) in enumerate(pairs)
            if this == (supervisor.GUARD, 0) and after[0] == SUPERVISOR
        ]
        return any(parts.index(POD_RUNNER) > place for place in together)

    def happen(self, lab: Lab) -> None:
        for part, pause_s in self.order:
            pid = guard.pid(lab) if part == SUPERVISOR else component_of(lab, part).pid()
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(pause_s)
        names = pod_networks(lab)
        for name in names[: math.ceil(self.networks_lost * len(names))]:
            subprocess.run(["ip", "netns", "del", name], check=False)


def test_an_order_leaves_pods_that_neither_a_parent_nor_a_name_leads_to() -> None:
    assert any(Deaths.of(seed).leaves_pods_alone for seed in ORDERS)


def lose_pods(lab: Lab) -> None:
    """Kill all that looks after pods, and take their networks' names away: no parent and no name leads to them."""
    kept = [component_of(lab, name).pid() for name in (supervisor.GUARD, POD_RUNNER)]
    for pid in (kept[0], guard.pid(lab), kept[1]):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    for name in pod_networks(lab):
        subprocess.run(["ip", "netns", "del", name], check=True)


def pod_networks(lab: Lab) -> list[str]:
    names = [line.split()[0] for line in subprocess.check_output(["ip", "netns", "list"], text=True).splitlines()]
    return [name for name in names if name.startswith(f"{lab.prefix}-p-")]


@pytest.mark.parametrize(
    "ending",
    [
        "orderly",
        "everything killed",
        *(
            pytest.param(ending, marks=pytest.mark.exhaustive)
            for ending in (
                "supervisor killed",
                "state folder lost",
                "mount left",
                "namespace without its name",
                "pods that nobody knows",
                *ORDERS,
            )
        ),
    ],
)
def test_down_leaves_nothing(spare_lab: Lab, ending: str | int) -> None:
    """A number is the seed of an order in which parts of the lab die before."""
    down.take_down(spare_lab)
    before = machine_state(spare_lab)
    bring_up_cluster(spare_lab, hgx=1)
    assert left_behind(spare_lab, before), "the listing does not see a running lab"
    if isinstance(ending, int):
        start_pods(spare_lab)
        Deaths.of(ending).happen(spare_lab)
    if ending == "pods that nobody knows":
        start_pods(spare_lab)
        lose_pods(spare_lab)
    if ending == "supervisor killed":
        os.kill(eventually(lambda: guard.pid(spare_lab)), signal.SIGKILL)
    elif ending == "state folder lost":
        tools = spare_lab.bin.readlink()
        # What still runs writes into it.
        eventually(lambda: subprocess.run(["rm", "-rf", str(spare_lab.home)], check=False).returncode == 0)
        spare_lab.home.mkdir(exist_ok=True)
        spare_lab.bin.symlink_to(tools)
    elif ending == "mount left":
        mount_point = spare_lab.pods / "left"
        mount_point.mkdir(parents=True)
        subprocess.run(["mount", "--no-mtab", "-t", "tmpfs", "none", str(mount_point)], check=True)
        assert str(mount_point) in left_behind(spare_lab, before)["mounts"]
    elif ending == "namespace without its name":
        # As after a manual deletion: its processes live on where no listing by name finds them.
        subprocess.run(["ip", "netns", "del", spare_lab.namespace], check=True)
    elif ending == "everything killed":
        for pid in network.namespace_processes(spare_lab):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    down.take_down(spare_lab)
    assert left_behind(spare_lab, before) == {}
    assert {path.name for path in spare_lab.home.iterdir()} == {"bin"}
    down.take_down(spare_lab)


def test_down_spares_a_lab_of_the_same_index_in_other_namespaces(lab_of_tools: Lab) -> None:
    program = f"""
import os
from pathlib import Path
from lab.cluster import network
from lab.paths import Lab

lab = Lab(home=Path({str(lab_of_tools.home)!r}), cache=Path({str(lab_of_tools.cache)!r}))
os.execvpe("sleep", ["sleep", "3600"], network.environment(lab))
"""
    other = subprocess.Popen([CHECKOUT / "tests/lab/alone.sh", sys.executable, "-c", program], cwd=CHECKOUT)
    try:
        eventually(lambda: [mark for mark in processes.variables(network.MARK).values() if lab_of_tools.prefix in mark])
        network.teardown(lab_of_tools)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
