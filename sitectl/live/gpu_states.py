"""The states of a node with GPUs on its way to offer them, in the order of the chain that makes it do so.

Pure: a table, and which row a node's evidence fits. docs/runbooks/gpu-not-offered.md has the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from posixpath import dirname, normpath

from sitectl.live import gpu_signs
from sitectl.live.gpu_evidence import Evidence

RUNBOOK = "docs/runbooks/gpu-not-offered.md"
WELL = "well"
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]*)(#[^)]*)?\)")


@dataclass(frozen=True, kw_only=True)
class State:
    """One row. Each text goes into the runbook's table as it is."""

    name: str
    sign: str
    """By what it is known."""
    cause: str
    fix: str
    find: Callable[[Evidence], str]
    """What was seen of it; empty where the node is not in this state."""


@dataclass(frozen=True, kw_only=True)
class GpuFinding:
    """The state of a node, with what was seen of it."""

    node: str
    state: State
    seen: str

    @property
    def is_well(self) -> bool:
        """Whether the node offers all its GPUs and nothing is wrong."""
        return self.state.name == WELL

    @property
    def cause(self) -> str:
        """As text for a terminal."""
        return self.state.cause.replace("`", "")

    def fix(self, site: str, address: str) -> str:
        """What to do, as text for a terminal: commands with the site's name and the machine's address."""
        named = self.state.fix.replace("SITE", site).replace("ADDRESS", address or "ADDRESS")
        return _LINK.sub(_place, named).replace("`", "")

    @property
    def text(self) -> str:
        """One line: state, what was seen."""
        return f"{self.state.name}: {self.seen}"


def _place(link: re.Match[str]) -> str:
    """The page that a link of the runbook leads to, from the root of the project."""
    return normpath(f"{dirname(RUNBOOK)}/{link[2]}") if link[2] else RUNBOOK


def classify(evidence: Evidence) -> GpuFinding:
    """The first state that the node's evidence fits: what comes later in the chain waits for it."""
    for state in STATES:
        if seen := state.find(evidence):
            return GpuFinding(node=evidence.node, state=state, seen=seen)
    raise AssertionError("the last state fits every node")


def table() -> str:
    """The states as a table of Markdown."""
    rows = [f"| `{state.name}` | {state.sign} | {state.cause} | {state.fix} |" for state in STATES]
    return "\n".join(["| state | sign | cause | fix |", "|---|---|---|---|", *rows])


STATES: tuple[State, ...] = (
    State(
        name="machine-silent",
        sign="the machine's API does not answer",
        cause="it is off, boots, or cannot be reached from here",
        fix="open its console by the BMC; [Bring machines up](bring-up.md)",
        find=gpu_signs.silent,
    ),
    State(
        name="extension-missing",
        sign="the running image lacks an extension of NVIDIA that the schematic has",
        cause="the machine runs another image than its schematic",
        fix="`python -m sitectl plan SITE` shows it, `up` installs it",
        find=gpu_signs.extension_missing,
    ),
    State(
        name="versions-differ",
        sign="the extension has another driver than the kernel or the pins, or is for another Talos",
        cause="an upgrade failed and Talos fell back, or the image was made by hand",
        fix="`up` installs one Talos version with its extensions; [Upgrade machines](upgrade-machines.md)",
        find=gpu_signs.versions_differ,
    ),
    State(
        name="modules-not-loaded",
        sign="`/proc/modules` has no `nvidia` or no `nvidia_uvm`",
        cause="a patch removed `kernel.modules`, or the module refused the GPU",
        fix="`talosctl -n ADDRESS dmesg`, lines `NVRM`; `python -m sitectl plan SITE` shows a config that differs",
        find=gpu_signs.modules_missing,
    ),
    State(
        name="fabric-manager-differs",
        sign="the extension `nvidia-fabricmanager` is of another version than the driver; HGX alone",
        cause="extensions of two Talos versions (siderolabs/pkgs#720)",
        fix="install both from one Talos version",
        find=gpu_signs.fabric_manager_differs,
    ),
    State(
        name="fabric-manager-down",
        sign="`ext-nvidia-fabricmanager` is not Running; HGX alone",
        cause="it finds no NVSwitch (`NV_WARN_NOTHING_TO_DO`), or does not fit the driver",
        fix="`talosctl -n ADDRESS logs ext-nvidia-fabricmanager`; without switches, check firmware and `dmesg`",
        find=gpu_signs.fabric_manager_down,
    ),
    State(
        name="driver-service-down",
        sign="another service `ext-nvidia-*` is not well",
        cause="the driver does not answer it: a GPU is lost, or the versions differ",
        fix="`talosctl -n ADDRESS logs SERVICE`; [A GPU is not well](gpu-unwell.md)",
        find=gpu_signs.service_down,
    ),
    State(
        name="node-away",
        sign="the cluster has no such node, or it is not Ready",
        cause="the kubelet does not run, or has no network",
        fix="`python -m talos health --address ADDRESS --talosconfig talosconfig`; "
        "[Add, remove or replace a node](replace-node.md)",
        find=gpu_signs.node_away,
    ),
    State(
        name="taint-not-tolerated",
        sign="the node has a taint that neither the site names nor its watcher sets",
        cause="a taint that someone set by hand keeps the stack's pods away",
        fix="name it in `taints` of the role `hgx` (`cluster.machines.roles`), from which tolerations follow, or take "
        "it off",
        find=gpu_signs.taint,
    ),
    State(
        name="not-discovered",
        sign="no label `feature.node.kubernetes.io/pci-10de.present`",
        cause="no pod of node feature discovery runs on the node, or the PCI bus shows no GPU",
        fix="look for its worker on the node; `talosctl -n ADDRESS get pcidevices`",
        find=gpu_signs.not_discovered,
    ),
    State(
        name="os-version-with-v",
        sign="label `system-os_release.VERSION_ID` begins with v, and the operator is before v26.3.1",
        cause="that operator reads Talos's version wrong (NVIDIA/gpu-operator#2239)",
        fix="install the pinned operator, or a later one",
        find=gpu_signs.version_with_v,
    ),
    State(
        name="not-taken-by-operator",
        sign="discovered, and no label `nvidia.com/gpu.present`; `operator` alone",
        cause="the operator does not run, or the API server refuses an object of it",
        fix="`kubectl -n gpu-operator logs deployment/gpu-operator`",
        find=gpu_signs.not_taken_by_operator,
    ),
    State(
        name="no-runtime-class",
        sign="no RuntimeClass `nvidia`",
        cause="the operator has not made it, or someone deleted it",
        fix="run `up` again; with `external`, make it yourself",
        find=gpu_signs.no_runtime_class,
    ),
    State(
        name="pods-not-begun",
        sign="a pod of the validator or the device plugin has started no container, or has no image",
        cause="the node still pulls images of several GB, or the registry refuses them",
        fix="wait, or `kubectl -n gpu-operator get events`; [a mirror](../how-to/air-gap.md)",
        find=gpu_signs.not_begun,
    ),
    State(
        name="libraries-not-found",
        sign="a container ends because it does not find a library of the driver",
        cause="Talos has them below `/usr/local/glibc`, and the operator was given another `driverInstallDir`",
        fix="set `hostPaths.driverInstallDir: /usr/local`, as the program does; no second device plugin by hand",
        find=gpu_signs.libraries_not_found,
    ),
    State(
        name="validator-without-talos",
        sign="the validator waits for `driver-ready` or `toolkit-ready`, and the operator is before v26.3.1",
        cause="that validator never finds a driver that Talos brings (NVIDIA/gpu-operator#1687)",
        fix="install the pinned operator, or a later one",
        find=gpu_signs.old_validator_waits,
    ),
    State(
        name="waits-for-driver",
        sign="the validator's `driver-validation` has not passed, so plugin and discovery stay in `Init`",
        cause="`nvidia-smi` ends with an error: a lost GPU or a pending row remap (NVIDIA/gpu-operator#2596)",
        fix="`kubectl -n gpu-operator logs -l app=nvidia-operator-validator -c driver-validation`; drain and reset the "
        "node, or replace the GPU",
        find=gpu_signs.waits_for_driver,
    ),
    State(
        name="waits-for-toolkit",
        sign="the validator's `toolkit-validation` has not passed",
        cause="containerd has no handler `nvidia`, or no CDI file `/run/cdi/nvidia.yaml`",
        fix="`talosctl -n ADDRESS logs ext-nvidia-cdi-gen`; restart the node",
        find=gpu_signs.waits_for_toolkit,
    ),
    State(
        name="cuda-fails",
        sign="the validator's `cuda-validation` has not passed",
        cause="CUDA does not start; `system not yet initialized` (802) means that the fabric is not ready",
        fix="`talosctl -n ADDRESS logs ext-nvidia-fabricmanager`; [A GPU is not well](gpu-unwell.md)",
        find=gpu_signs.cuda_fails,
    ),
    State(
        name="no-device-plugin",
        sign="no pod of the device plugin on the node",
        cause="its DaemonSet does not select the node, or cannot create the pod",
        fix="`kubectl -n gpu-operator describe daemonset` shows events; set labels `nvidia.com/gpu.deploy.*` to `true`",
        find=gpu_signs.no_plugin,
    ),
    State(
        name="device-plugin-fails",
        sign="the device plugin's pod is not ready",
        cause="it finds no driver, or no GPU",
        fix="`kubectl -n gpu-operator logs -l app=nvidia-device-plugin-daemonset`",
        find=gpu_signs.plugin_fails,
    ),
    State(
        name="slices-missing",
        sign="fewer slices than the layout of the node gives",
        cause="the GPUs are not cut, or are cut in another way",
        fix="[Slices are missing](#slices-are-missing)",
        find=gpu_signs.slices_missing,
    ),
    State(
        name="gpus-unhealthy",
        sign="fewer GPUs allocatable than in `capacity`",
        cause="the device plugin leaves out a GPU that reports a fatal error (Xid)",
        fix="cordon and drain the node; [A GPU is not well](gpu-unwell.md). `dead: true` is for a machine that is off, "
        "as `up` then drains nothing",
        find=gpu_signs.gpus_unhealthy,
    ),
    State(
        name="fewer-gpus",
        sign="all of `capacity` is allocatable, and the site's file states more",
        cause="a GPU is not on the bus, or a second device plugin offers the same ones",
        fix="`talosctl -n ADDRESS dmesg`; remove a device plugin that was installed by hand",
        find=gpu_signs.fewer_gpus,
    ),
    State(
        name="not-labelled",
        sign="the node offers all GPUs, and has no label `nvidia.com/gpu.family`",
        cause="GPU feature discovery does not run on the node; replicas select this label",
        fix="`kubectl -n gpu-operator logs -l app=gpu-feature-discovery`",
        find=gpu_signs.not_labelled,
    ),
    State(
        name=WELL,
        sign="the node offers all GPUs, and nothing else is wrong",
        cause="the chain is whole",
        fix="none needed",
        find=lambda node: f"offers {node.quantity('allocatable')} {node.wanted.resource}",
    ),
)
