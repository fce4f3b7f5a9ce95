"""Which state a node with GPUs is in, by what is seen of it; and that the runbook has the same states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from floor import gpu_nodes
from floor.taints import Taint
from sitectl.live.gpu_evidence import Evidence
from sitectl.live.gpu_states import RUNBOOK, STATES, WELL, classify, table
from tests import gpu_nodes_seen as seen
from tests.gpu_nodes_seen import DONE, LABELS, MACHINE, RUNNING, node, plugin, validator, waiting, without_gpus

pytestmark = pytest.mark.row("000.12", "002.11")

ROOT = Path(__file__).parents[3]
FOREIGN = {"key": "site.example/rented", "value": "yes", "effect": "NoSchedule"}
OS_VERSION = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
NO_LIBRARY = "load library failed: libnvidia-ml.so.1: cannot open shared object file: no such file or directory"


def machine(**changes: object) -> Evidence:
    return replace(seen.WELL, machine=replace(MACHINE, **changes))  # type: ignore[arg-type]


def extensions(**versions: str) -> Evidence:
    known = {"modules": seen.MODULES, "fabric": seen.FABRIC}
    return machine(extensions={**MACHINE.extensions, **{known[part]: text for part, text in versions.items()}})


def services(name: str, state: str | None) -> Evidence:
    left = {key: value for key, value in MACHINE.services.items() if key != name}
    return machine(services=left | ({name: state} if state else {}))


def labelled(**left_out: str) -> dict[str, str]:
    return {key: value for key, value in LABELS.items() if key not in left_out.values()}


def of_node(labels: dict[str, str] | None = None, **changes: object) -> Evidence:
    """Without GPUs, and with these labels."""
    return without_gpus(registered=node(labels=labels, capacity=0, allocatable=0), **changes)


# (state, what was seen, evidence): at least one for each state.
CASES: list[tuple[str, str, Evidence]] = [
    (WELL, "offers 8 nvidia.com/gpu", seen.WELL),
    (WELL, "offers 8", replace(seen.WELL, machine=None)),
    (WELL, "offers 8", replace(seen.WELL, pods=[plugin(by_operator=False)])),
    (WELL, "offers 8", replace(seen.WELL, registered=node(taints=[FOREIGN]))),
    (WELL, "offers 8", services("ext-nvidia-cdi-gen", None)),
    ("machine-silent", "timed out", replace(seen.WELL, machine=None, silent="does not answer: timed out")),
    (
        "extension-missing",
        seen.TOOLKIT,
        machine(extensions={k: v for k, v in MACHINE.extensions.items() if k != seen.TOOLKIT}),
    ),
    ("versions-differ", "the kernel has driver 580.1.2", machine(driver="580.1.2")),
    ("versions-differ", "is for Talos v1.13.8, the machine runs v1.13.9", extensions(modules="595.91.07-v1.13.8")),
    (
        "versions-differ",
        "the pinned driver is 595.91.07",
        machine(driver="", extensions={**MACHINE.extensions, seen.MODULES: "580.1.2-v1.13.9"}),
    ),
    ("modules-not-loaded", "not loaded: nvidia, nvidia_uvm", machine(modules=frozenset({"nvme"}), driver="")),
    ("modules-not-loaded", "not loaded: nvidia_uvm", machine(modules=frozenset({"nvidia"}))),
    ("fabric-manager-differs", "is 580.1.2, the driver is 595.91.07", extensions(fabric="580.1.2")),
    ("fabric-manager-down", "ext-nvidia-fabricmanager is Waiting", services("ext-nvidia-fabricmanager", "Waiting")),
    ("fabric-manager-down", "is Finished", services("ext-nvidia-fabricmanager", "Finished")),
    ("fabric-manager-down", "is not there", services("ext-nvidia-fabricmanager", None)),
    ("driver-service-down", "ext-nvidia-persistenced is Failed", services("ext-nvidia-persistenced", "Failed")),
    ("node-away", "no node of this name", replace(seen.WELL, registered=None)),
    ("node-away", "Ready is Unknown", replace(seen.WELL, registered=node(ready="Unknown"))),
    (
        "taint-not-tolerated",
        "site.example/rented:NoSchedule",
        without_gpus(registered=node(taints=[FOREIGN], capacity=0, allocatable=0), pods=[]),
    ),
    (
        "taint-not-tolerated",
        "site.example/rented:NoExecute",
        without_gpus(registered=node(taints=[FOREIGN | {"effect": "NoExecute"}], capacity=0, allocatable=0)),
    ),
    ("not-discovered", f"no label {gpu_nodes.PCI_LABEL}", of_node({})),
    ("os-version-with-v", "VERSION_ID is v1.13.9", of_node({**LABELS, OS_VERSION: "v1.13.9"}, operator="v25.10.1")),
    ("not-taken-by-operator", "no label nvidia.com/gpu.present", of_node({gpu_nodes.PCI_LABEL: "true"})),
    ("no-runtime-class", "no RuntimeClass nvidia", replace(seen.WELL, has_runtime_class=False)),
    ("pods-not-begun", "plugin-x: Pending", without_gpus(pods=[validator(), seen.pending("plugin-x")])),
    (
        "pods-not-begun",
        "validator-x, driver-validation: PodInitializing",
        without_gpus(pods=[validator(driver_validation=waiting("PodInitializing"))]),
    ),
    (
        "pods-not-begun",
        "nvidia-device-plugin: ImagePullBackOff",
        without_gpus(pods=[validator(), plugin(waiting("ImagePullBackOff"))]),
    ),
    *(
        ("pods-not-begun", reason, without_gpus(pods=[validator(), plugin(waiting(reason))]))
        for reason in ("ErrImagePull", "InvalidImageName")
    ),
    *(
        ("libraries-not-found", text, without_gpus(pods=[validator(), plugin(waiting("RunContainerError", text))]))
        for text in ("libcuda.so.1: cannot open shared object file", "/usr/local/glibc: no such file or directory")
    ),
    (
        "libraries-not-found",
        "libnvidia-ml.so.1",
        without_gpus(pods=[validator(toolkit_validation=waiting("CrashLoopBackOff", NO_LIBRARY))]),
    ),
    (
        "libraries-not-found",
        "plugin-x, nvidia-device-plugin",
        without_gpus(pods=[validator(), plugin(waiting("RunContainerError", NO_LIBRARY))]),
    ),
    (
        "validator-without-talos",
        "operator v26.3.0: validator-x, driver-validation",
        without_gpus(pods=[validator(driver_validation=RUNNING)], operator="v26.3.0"),
    ),
    (
        "validator-without-talos",
        "toolkit-validation",
        without_gpus(pods=[validator(toolkit_validation=waiting("CrashLoopBackOff"))], operator="v25.10.1"),
    ),
    (
        "waits-for-driver",
        "driver-validation: runs, and is not done",
        without_gpus(pods=[validator(driver_validation=RUNNING), plugin(waiting("PodInitializing"), waits=RUNNING)]),
    ),
    ("waits-for-driver", "driver-validation", without_gpus(pods=[validator(driver_validation=RUNNING)], operator="")),
    # The first operator that finds Talos's driver.
    (
        "waits-for-driver",
        "driver-validation",
        without_gpus(pods=[validator(driver_validation=RUNNING)], operator="v26.3.1"),
    ),
    (
        "waits-for-toolkit",
        "toolkit-validation: CrashLoopBackOff",
        without_gpus(pods=[validator(toolkit_validation=waiting("CrashLoopBackOff"))]),
    ),
    (
        "cuda-fails",
        "cuda-validation: ended with 1",
        replace(seen.WELL, pods=[validator(cuda_validation={"terminated": {"exitCode": 1}}), plugin()]),
    ),
    ("no-device-plugin", "no pod of the device plugin", without_gpus(pods=[validator()])),
    (
        "device-plugin-fails",
        "nvidia-device-plugin CrashLoopBackOff",
        without_gpus(pods=[validator(), plugin(waiting("CrashLoopBackOff"))]),
    ),
    (
        "device-plugin-fails",
        "toolkit-validation runs, and is not done",
        without_gpus(pods=[validator(), plugin(waiting("PodInitializing"), waits=RUNNING)]),
    ),
    (
        "slices-missing",
        "0 of 56 nvidia.com/mig-1g.18gb",
        replace(seen.WELL, wanted=replace(seen.WANTED, resource="nvidia.com/mig-1g.18gb", count=56)),
    ),
    (
        "gpus-unhealthy",
        "7 of 8 nvidia.com/gpu allocatable, capacity 8",
        replace(seen.WELL, registered=node(allocatable=7)),
    ),
    (
        "fewer-gpus",
        "7 of 8 nvidia.com/gpu allocatable, capacity 7",
        replace(seen.WELL, registered=node(capacity=7, allocatable=7)),
    ),
    (
        "not-labelled",
        f"no label {gpu_nodes.FAMILY_LABEL}",
        replace(seen.WELL, registered=node(labels=labelled(family=gpu_nodes.FAMILY_LABEL))),
    ),
]


@pytest.mark.parametrize(("state", "what", "evidence"), CASES, ids=[f"{state}-{what}"[:60] for state, what, _ in CASES])
def test_a_state_is_known_by_what_is_seen_of_it(state: str, what: str, evidence: Evidence) -> None:
    finding = classify(evidence)
    assert (finding.state.name, finding.is_well) == (state, state == WELL)
    assert what in finding.text


def test_every_state_has_a_case() -> None:
    assert {state for state, _, _ in CASES} == {state.name for state in STATES}


def test_the_first_link_that_is_missing_is_the_state() -> None:
    """Without modules nothing behind them works, and none of that is the cause."""
    broken = without_gpus(
        machine=replace(MACHINE, modules=frozenset(), driver="", services={}),
        pods=[validator(driver_validation=RUNNING)],
        registered=node(labels={}, capacity=0, allocatable=0),
    )
    assert classify(broken).state.name == "modules-not-loaded"


def test_taints_that_pods_of_the_stack_tolerate_are_none_of_the_states() -> None:
    own = Taint(key=FOREIGN["key"], value="", effect=FOREIGN["effect"])
    cordoned = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    starting = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}
    soft = {"key": "site.example/rather-not", "effect": "PreferNoSchedule"}
    tainted = without_gpus(
        wanted=replace(seen.WANTED, tolerated=[*seen.WANTED.tolerated, own]),
        registered=node(taints=[FOREIGN, cordoned, starting, soft], capacity=0, allocatable=0),
    )
    assert classify(tainted).state.name == "fewer-gpus"


def test_a_stack_that_the_site_brings_itself_need_not_have_the_pods_that_are_known() -> None:
    external = replace(seen.WANTED, stack="external")
    assert classify(without_gpus(wanted=external, pods=[])).state.name == "fewer-gpus"
    assert classify(of_node({gpu_nodes.PCI_LABEL: "true"}, wanted=external, pods=[])).state.name == "fewer-gpus"


def test_a_fix_names_the_site_the_machine_and_the_page() -> None:
    fix = classify(machine(modules=frozenset(), driver="")).fix("prod", "10.5.0.21")
    assert fix.startswith("talosctl -n 10.5.0.21 dmesg")
    assert "python -m sitectl plan prod" in fix
    silent = classify(replace(seen.WELL, machine=None, silent="off")).fix("prod", "")
    assert silent.endswith("docs/runbooks/bring-up.md")
    slices = replace(seen.WELL, wanted=replace(seen.WANTED, resource="nvidia.com/mig-1g.18gb", count=56))
    assert classify(slices).fix("prod", "") == RUNBOOK
    pulled = classify(without_gpus(pods=[seen.pending("plugin-x")]))
    assert pulled.fix("prod", "").endswith("; docs/how-to/air-gap.md")


def test_the_runbook_has_the_states() -> None:
    assert table() in (ROOT / RUNBOOK).read_text()


def test_a_crash_that_is_over_is_no_state_of_a_node_that_offers_all() -> None:
    """As of a device plugin that started before the driver was there."""
    restarted = plugin()
    restarted["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 1, "message": NO_LIBRARY}}
    assert classify(replace(seen.WELL, pods=[validator(), restarted])).is_well
    assert classify(without_gpus(pods=[validator(), restarted])).state.name == "libraries-not-found"


def test_a_validator_that_has_not_begun_a_container_waits_for_the_one_before() -> None:
    """Containers behind the first unfinished one are `PodInitializing`, and none of them is the state."""
    later = validator(driver_validation=RUNNING, toolkit_validation=waiting("PodInitializing"))
    assert classify(without_gpus(pods=[later])).state.name == "waits-for-driver"
    assert classify(without_gpus(pods=[validator(driver_validation=DONE), plugin()])).state.name == "fewer-gpus"
    done = {name.replace("-", "_"): waiting("PodInitializing") for name in ("cuda-validation", "plugin-validation")}
    assert classify(replace(seen.WELL, pods=[validator(**done), plugin()])).is_well


def test_a_machine_that_runs_is_drained_and_not_called_dead() -> None:
    """`up` removes the Node of a dead machine without a drain, under the replicas that the other GPUs serve."""
    (fix,) = [state.fix for state in STATES if "dead: true" in state.fix]
    assert fix.index("drain the node") < fix.index("dead: true")
    assert "a machine that is off" in fix
