"""Nodes with GPUs as they are seen: one that is well, and what tests change of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from floor import gpu_nodes
from floor.taints import GPU_TAINT
from sitectl.live.gpu_evidence import Evidence, MachineSeen, WantedOffer

TALOS, DRIVER = "v1.13.9", "595.91.07"
MODULES = "nvidia-open-gpu-kernel-modules-production"
FABRIC = "nvidia-fabricmanager-production"
TOOLKIT = "nvidia-container-toolkit-production"
WANTED = WantedOffer(
    resource=gpu_nodes.RESOURCE,
    count=8,
    stack="operator",
    tolerated=[GPU_TAINT],
    extensions=[FABRIC, MODULES, TOOLKIT, "iscsi-tools"],
    driver=DRIVER,
    fabric_manager=DRIVER,
)
MACHINE = MachineSeen(
    talos=TALOS,
    extensions={
        MODULES: f"{DRIVER}-{TALOS}",
        FABRIC: DRIVER,
        TOOLKIT: f"{DRIVER}-v1.19.1",
        "iscsi-tools": "v0.2.0",
        "schematic": "abc",
    },
    services={
        "apid": "Running",
        "ext-nvidia-fabricmanager": "Running",
        "ext-nvidia-persistenced": "Running",
        "ext-nvidia-cdi-gen": "Finished",
    },
    modules=frozenset({"nvidia", "nvidia_uvm", "nvidia_drm"}),
    driver=DRIVER,
)
LABELS = {gpu_nodes.PCI_LABEL: "true", "nvidia.com/gpu.present": "true", gpu_nodes.FAMILY_LABEL: "hopper"}


def node(
    name: str = "hgx-1", *, labels: dict[str, str] | None = None, taints: Any = (), ready: str = "True", **gpus: int
) -> dict[str, Any]:
    """A Node. gpus: capacity and allocatable, if they are not all of them."""
    own = {"key": gpu_nodes.TAINT_KEY, "value": gpu_nodes.TAINT_VALUE, "effect": gpu_nodes.TAINT_EFFECT}
    return {
        "metadata": {"name": name, "labels": LABELS if labels is None else labels},
        "spec": {"taints": [own, *taints]},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "capacity": {gpu_nodes.RESOURCE: str(gpus.get("capacity", 8))},
            "allocatable": {gpu_nodes.RESOURCE: str(gpus.get("allocatable", 8))},
        },
    }


RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
DONE: dict[str, Any] = {"terminated": {"exitCode": 0}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def pod(name: str, labels: dict[str, str], *, init: dict[str, Any], main: dict[str, Any], on: str = "hgx-1") -> Any:
    """A pod of the stack. init, main: container -> state; those of `main` that run are ready."""
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": on, "containers": []},
        "status": {
            "phase": "Running",
            "initContainerStatuses": [{"name": key, "state": state} for key, state in init.items()],
            "containerStatuses": [
                {"name": key, "state": state, "ready": "running" in state} for key, state in main.items()
            ],
        },
    }


def validator(**states: dict[str, Any]) -> Any:
    """The operator's validator, whose containers have passed but for `states` (`cuda_validation`, ...)."""
    names = ("driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation")
    init = {name: states.get(name.replace("-", "_"), DONE) for name in names}
    main = RUNNING if all(state == DONE for state in init.values()) else waiting("PodInitializing")
    labels = {"app": "nvidia-operator-validator"}
    return pod("validator-x", labels, init=init, main={"nvidia-operator-validator": main})


def plugin(state: dict[str, Any] = RUNNING, *, waits: dict[str, Any] = DONE, by_operator: bool = True) -> Any:
    """The device plugin."""
    labels = (
        {"app": "nvidia-device-plugin-daemonset"} if by_operator else {"app.kubernetes.io/name": "nvidia-device-plugin"}
    )
    return pod("plugin-x", labels, init={"toolkit-validation": waits}, main={"nvidia-device-plugin": state})


def pending(name: str) -> Any:
    """A pod of the device plugin of which the kubelet has reported nothing yet."""
    made = plugin()
    return {**made, "metadata": {**made["metadata"], "name": name}, "status": {"phase": "Pending"}}


WELL = Evidence(
    node="hgx-1",
    wanted=WANTED,
    machine=MACHINE,
    registered=node(),
    pods=[validator(), plugin()],
    operator="v26.7.1",
)


def without_gpus(**changes: Any) -> Evidence:
    """A node that is well but for offering nothing, and for `changes`."""
    return replace(WELL, **{"registered": node(capacity=0, allocatable=0), **changes})
