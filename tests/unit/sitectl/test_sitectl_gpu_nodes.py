"""`gpu-nodes`: what it reads of a site, and what it shows of its nodes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from floor import gpu_nodes
from services.watcher import variables
from sitectl.commands import gpu_nodes as command
from sitectl.live.gpu_evidence import ClusterSeen, MachinesSeen, evidence, look
from sitectl.live.gpu_states import classify
from sitectl.shell.errors import Exit
from stacks.plan.site_plan import plan_file, plan_values
from talos.api import client
from talos.api.errors import UnreachableError
from talos.api.results import ExtensionStatus, NodeVersion, Service
from tests import gpu_nodes_seen as seen
from tests.unit.sitectl.sites_to_work_on import CommandResult, make_checkout, run
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.12", "002.11")

LAB = plan_file(Path(__file__).parents[3] / "Pulumi.lab.yaml")
NAMES = ("hgx-1", "hgx-2", "hgx-3", "hgx-4")
PEM = base64.b64encode(b"-----BEGIN canary-key-----").decode()
TALOSCONFIG = {"context": "lab", "contexts": {"lab": {"ca": PEM, "crt": PEM, "key": PEM}}}


@dataclass(frozen=True)
class Answering:
    """A machine of the lab that is well, but for the state of its fabric manager."""

    fabric_manager: str = "Running"

    def version(self) -> NodeVersion:
        return NodeVersion(LAB.versions.talos, "", "amd64", "metal", "metal")

    def extensions(self) -> tuple[ExtensionStatus, ...]:
        driver, talos = LAB.versions.nvidia.production.driver, LAB.versions.talos
        names = (
            next(node for node in LAB.machines.nodes if node.spec.role == "hgx").schematic.extensions
            if LAB.machines
            else ()
        )
        versions = {name.removeprefix("siderolabs/"): driver for name in names}
        return tuple(
            ExtensionStatus(name, f"{version}-{talos}" if "kernel" in name else version)
            for name, version in versions.items()
        )

    def services(self) -> tuple[Service, ...]:
        states = {**seen.MACHINE.services, "ext-nvidia-fabricmanager": self.fabric_manager}
        return tuple(Service(name, state, None) for name, state in states.items())

    def kernel_modules(self) -> frozenset[str]:
        return seen.MACHINE.modules

    def nvidia_driver(self) -> str:
        return LAB.versions.nvidia.production.driver


def put(folder: Path, **kinds: list[Any]) -> None:
    for kind, items in kinds.items():
        (folder / f"{kind}.json").write_text(json.dumps({"items": items}))


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose `pulumi` has credentials, whose `kubectl` has four nodes, and whose machines answer or not."""
    programs = tmp_path / "bin"
    programs.mkdir()
    put(tmp_path, nodes=[seen.node(name) for name in NAMES], pods=[])
    put(tmp_path, runtimeclasses=[{"metadata": {"name": "nvidia"}}])
    (tmp_path / "talosconfig.json").write_text(json.dumps(yaml.safe_dump(TALOSCONFIG)))
    texts = {
        "pulumi": f'test "$3" = talosconfig && cat {tmp_path}/talosconfig.json || echo \'"kubeconfig"\'',
        "kubectl": f'case "$3" in --raw) echo \'{{"gitVersion": "v1.36.3"}}\';; *) cat {tmp_path}/"$3".json;; esac',
    }
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    @contextmanager
    def connect(host: str, _identity: Any, *, node: str, **_: Any) -> Iterator[Any]:
        if node == "hgx-2":
            raise UnreachableError(node=node, call="connect", cause=f"dial {host}: connection refused")
        yield Answering("Waiting" if node == "hgx-3" else "Running")

    monkeypatch.setattr(client, "connect", connect)
    return make_checkout(tmp_path / "project", sites=("lab",))


def asked(project: Path, *words: str) -> CommandResult:
    return run(project, "gpu-nodes", "lab", "--quiet", *words)


def test_the_command_shows_state_cause_and_fix_of_each_node(live: Path) -> None:
    shown = asked(live)
    assert (shown.status, shown.err) == (Exit.REFUSED, "")
    assert shown.out.splitlines() == [
        "lab: 4 nodes with GPUs, 2 well",
        "   hgx-1: well: offers 8 nvidia.com/gpu",
        "   hgx-2: machine-silent: does not answer: dial 198.18.49.12: connection refused",
        "      cause: it is off, boots, or cannot be reached from here",
        "      fix: open its console by the BMC; docs/runbooks/bring-up.md",
        "   hgx-3: fabric-manager-down: ext-nvidia-fabricmanager is Waiting",
        "      cause: it finds no NVSwitch (NV_WARN_NOTHING_TO_DO), or does not fit the driver",
        "      fix: talosctl -n 198.18.49.13 logs ext-nvidia-fabricmanager; without switches, check firmware and dmesg",
        "   hgx-4: well: offers 8 nvidia.com/gpu",
    ]
    record = asked(live, "--json").data["nodes"]
    assert [entry["state"] for entry in record] == ["well", "machine-silent", "fabric-manager-down", "well"]
    assert record[2]["fix"].startswith("talosctl -n 198.18.49.13")
    assert record[2]["cause"].startswith("it finds no NVSwitch (NV_WARN_NOTHING_TO_DO)")


def test_the_status_is_0_where_all_nodes_are_well(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def connect(*_: Any, **__: Any) -> Iterator[Any]:
        yield Answering()

    monkeypatch.setattr(client, "connect", connect)
    assert asked(live).status == Exit.OK


def test_a_cluster_whose_nodes_show_no_gpu_is_not_well(live: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a site that lists no machines, and whose nodes nothing has discovered."""
    put(live.parent, nodes=[seen.node("plain", labels={}, capacity=0, allocatable=0)])
    monkeypatch.setattr(command, "plan_file", lambda _: replace(LAB, machines=None))
    shown = asked(live)
    assert shown.status == Exit.REFUSED
    assert shown.out.splitlines() == [
        "lab: 0 nodes with GPUs, 0 well",
        "   no node of the cluster shows a GPU by a label or by what it offers; fix: docs/runbooks/gpu-not-offered.md",
    ]


def test_credentials_that_cannot_be_used_are_one_error_without_their_text(live: Path) -> None:
    (live.parent / "talosconfig.json").write_text('"contexts: {lab: {key: canary-key}}"')
    shown = asked(live)
    assert shown.status == Exit.UNABLE
    assert shown.err.startswith("error: the stack of lab: ")
    assert "canary" not in shown.err + shown.out


def test_a_cluster_that_does_not_answer_is_one_error_and_no_machine_is_asked(
    live: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (live.parent / "bin" / "kubectl").write_text("#!/bin/sh\necho 'error: refused' >&2; exit 1\n")
    monkeypatch.setattr(client, "connect", None)
    shown = asked(live)
    assert shown.status == Exit.UNABLE
    assert shown.err.startswith("error: the cluster of lab does not answer: refused")


def test_of_a_cluster_that_the_program_did_not_make_no_machine_is_asked(live: Path) -> None:
    file = live / "Pulumi.lab.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"]["inference-platform:site"]["cluster"] = {"kubeconfig": "kubeconfig"}
    file.write_text(yaml.safe_dump(document))
    (live / "kubeconfig").write_text("{}")
    (live.parent / "talosconfig.json").unlink()
    shown = asked(live)
    assert (shown.status, shown.out.splitlines()[0]) == (Exit.OK, "lab: 4 nodes with GPUs, 4 well"), shown.err


def test_a_machine_without_the_module_is_not_asked_for_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no such file, and would be called silent."""
    monkeypatch.setattr(Answering, "kernel_modules", lambda _: frozenset({"nvme"}))
    monkeypatch.setattr(Answering, "nvidia_driver", lambda _: pytest.fail("it was asked"))
    machine: Any = Answering()
    assert look(machine).driver == ""


def test_a_pod_is_evidence_for_its_own_node_alone() -> None:
    plan = plan_values(changed(prod(), {"cluster.gpu_stack": "operator"}), "site.yaml")
    waits = seen.validator(driver_validation=seen.RUNNING)
    elsewhere = {**waits, "spec": {**waits["spec"], "nodeName": "hgx-2"}}
    objects = ClusterSeen(nodes=[seen.node(name) for name in NAMES], pods=[elsewhere], runtime_classes=[])
    by_node = {entry.node: entry for entry in evidence(plan, objects, MachinesSeen())}
    assert [len(entry.pods) for entry in by_node.values()] == [0, 1, 0, 0]
    assert not any(entry.has_runtime_class for entry in by_node.values())


def test_what_a_node_is_to_offer_is_as_the_sites_file_cuts_its_gpus() -> None:
    layout = {"cluster.gpu_stack": "external", "cluster.machines.nodes.hgx-4.mig": "all-1g.18gb"}
    dead = {"cluster.machines.nodes.hgx-3.dead": True}
    plan = plan_values(changed(prod(), {**layout, **dead, "models": {}, "tenants": {}}), "site.yaml")
    wanted = {
        entry.node: entry.wanted
        for entry in evidence(plan, ClusterSeen(nodes=[], pods=[], runtime_classes=[]), MachinesSeen())
    }
    assert {name: (entry.resource, entry.count) for name, entry in wanted.items()} == {
        "hgx-1": ("nvidia.com/gpu", 8),
        "hgx-2": ("nvidia.com/gpu", 8),
        "hgx-4": ("nvidia.com/mig-1g.18gb", 56),
    }
    pins = plan.versions.nvidia.lts
    assert (wanted["hgx-1"].driver, wanted["hgx-1"].fabric_manager) == (pins.driver, pins.fabric_manager)


def test_a_node_of_others_that_is_cut_offers_slices() -> None:
    """It was shown as one that lacks its GPUs, with a second device plugin as the cause."""
    cut = seen.node("cut", labels={"nvidia.com/gpu.count": "8", **seen.LABELS}, capacity=0, allocatable=0)
    for part in ("capacity", "allocatable"):
        cut["status"][part]["nvidia.com/mig-1g.18gb"] = "56"
    plan = replace(LAB, machines=None)
    objects = ClusterSeen(nodes=[cut], pods=[], runtime_classes=[{"metadata": {"name": "nvidia"}}])
    (entry,) = evidence(plan, objects, MachinesSeen())
    assert (entry.wanted.resource, entry.wanted.count) == ("nvidia.com/mig-1g.18gb", 56)
    assert classify(entry).is_well


def test_the_pinned_driver_is_that_of_the_machines_own_line() -> None:
    plan = plan_values(changed(prod(), {"cluster.machines.hgx.fork": "production"}), "site.yaml")
    (first, *_) = evidence(plan, ClusterSeen(nodes=[], pods=[], runtime_classes=[]), MachinesSeen())
    pins = plan.versions.nvidia.production
    assert (first.wanted.driver, first.wanted.fabric_manager) == (pins.driver, pins.fabric_manager)
    assert pins.driver != plan.versions.nvidia.lts.driver


@pytest.mark.parametrize(("change", "state"), [({"on_fault": "drain"}, "gpus-unhealthy"), ({}, "taint-not-tolerated")])
def test_a_node_that_the_watcher_took_out_is_in_the_state_of_its_gpus(change: dict[str, str], state: str) -> None:
    """It was shown as one whose taint is to be taken off. Without a watcher the stack's pods do not tolerate it."""
    plan = replace(plan_values(changed(prod(), {"monitoring.gpu_faults": change}), "site.yaml"), machines=None)
    labels = {**seen.LABELS, "nvidia.com/gpu.count": "8"}
    taint = {"key": variables.FAULT, "value": "xid-79", "effect": "NoSchedule"}
    out = seen.node("hgx-1", taints=[taint], labels=labels, capacity=8, allocatable=7)
    pods = [{**pod, "spec": {**pod["spec"], "nodeName": "hgx-1"}} for pod in seen.WELL.pods]
    objects = ClusterSeen(nodes=[out], pods=pods, runtime_classes=[{"metadata": {"name": "nvidia"}}])
    (entry,) = evidence(plan, objects, MachinesSeen())
    assert classify(entry).state.name == state


def test_nodes_that_no_file_lists_are_those_that_show_gpus() -> None:
    """By a label, or by what they offer; each is to offer what is counted there."""
    plan = replace(LAB, machines=None)
    counted = seen.node("counted", labels={"nvidia.com/gpu.count": "4", **seen.LABELS}, capacity=0, allocatable=0)
    offering = seen.node("offering", labels={}, capacity=2, allocatable=2)
    on_the_bus = seen.node("found", labels={gpu_nodes.PCI_LABEL: "true"}, capacity=0, allocatable=0)
    plain = seen.node("plain", labels={}, capacity=0, allocatable=0)
    operator = seen.pod("operator", {"app": "gpu-operator"}, init={}, main={})
    operator["spec"]["containers"] = [{"image": "nvcr.io/nvidia/gpu-operator:v25.10.1"}]
    objects = ClusterSeen(nodes=[counted, offering, on_the_bus, plain], pods=[operator], runtime_classes=[])
    entries = list(evidence(plan, objects, MachinesSeen()))
    assert [(entry.node, entry.wanted.count) for entry in entries] == [
        ("counted", 4),
        ("offering", 2),
        ("found", 1),
    ]
    assert {entry.operator for entry in entries} == {"v25.10.1"}
