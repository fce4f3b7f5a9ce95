"""What can be seen of a site's nodes with GPUs: their machines' own API, and objects of the cluster. Reads alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from components.addons.gpu_stack import OF_WATCHER
from floor import gpu_nodes
from floor.taints import Taint
from stacks.facts.hardware import slice_name, slices_per_node
from stacks.facts.mig import profile_of
from stacks.plan.cluster import PlannedNode
from stacks.plan.node_taints import gpu_node_taints
from stacks.plan.site_plan import SitePlan
from talos.api.errors import MachineApiError

if TYPE_CHECKING:
    # It brings protobuf, which no other command needs.
    from talos.api.client import MachineClient

Object = Mapping[str, Any]
_AT_ONCE = 16
_COUNT_LABEL = "nvidia.com/gpu.count"
_TAG = re.compile(r":(v?\d+\.\d+\.\d+)")


@dataclass(frozen=True, kw_only=True)
class MachineSeen:
    """What a machine's own API shows."""

    talos: str
    extensions: Mapping[str, str]
    """Name -> version, of the running image."""
    services: Mapping[str, str]
    """Talos's services -> state."""
    modules: frozenset[str]
    """Kernel modules that are loaded."""
    driver: str
    """NVIDIA's, by the kernel; empty where its module is not loaded."""


@dataclass(frozen=True, kw_only=True)
class WantedOffer:
    """What the site's file and the pins state of a node."""

    resource: str
    count: int
    stack: str
    """What brings the device plugin: operator, device_plugin or external."""
    tolerated: Sequence[Taint]
    extensions: Sequence[str] = ()
    """Of the machine's schematic, without their publisher; empty where the program did not install it."""
    driver: str = ""
    fabric_manager: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One node."""

    node: str
    wanted: WantedOffer
    machine: MachineSeen | None = None
    """None where the program did not install the machine, or it is silent."""
    silent: str = ""
    """Why the machine's API does not answer."""
    registered: Object | None = None
    """The Node."""
    pods: Sequence[Object] = ()
    """Of the node."""
    has_runtime_class: bool = True
    operator: str = ""
    """Version of the GPU operator, by its image; empty where it does not show."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the Node."""
        return (self.registered or {}).get("metadata", {}).get("labels") or {}

    def quantity(self, of: str) -> int:
        """How many GPUs or slices are in `capacity` or `allocatable`."""
        return int((self.registered or {}).get("status", {}).get(of, {}).get(self.wanted.resource, 0))

    @property
    def offers_all(self) -> bool:
        """Whether the scheduler has what the site's file states."""
        return self.quantity("allocatable") >= self.wanted.count


@dataclass(frozen=True, kw_only=True)
class ClusterSeen:
    """Objects of the cluster."""

    nodes: Sequence[Object]
    pods: Sequence[Object]
    runtime_classes: Sequence[Object]


@dataclass(frozen=True, kw_only=True)
class MachinesSeen:
    """What the machines answered, by node."""

    seen: Mapping[str, MachineSeen] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)


def look(machine: MachineClient) -> MachineSeen:
    """Ask one machine. Raises MachineApiError."""
    modules = machine.kernel_modules()
    return MachineSeen(
        talos=machine.version().tag,
        extensions={extension.name: extension.version for extension in machine.extensions()},
        services={service.id: service.state for service in machine.services()},
        modules=modules,
        driver=machine.nvidia_driver() if "nvidia" in modules else "",
    )


def ask(
    nodes: Sequence[PlannedNode], reach: Callable[[PlannedNode], AbstractContextManager[MachineClient]]
) -> MachinesSeen:
    """Ask machines at once, each by its own API."""
    seen, silent = dict[str, MachineSeen](), dict[str, str]()

    def look_at(node: PlannedNode) -> None:
        try:
            with reach(node) as machine:
                seen[node.name] = look(machine)
        except MachineApiError as error:
            silent[node.name] = f"does not answer: {error.cause}"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(look_at, nodes))
    return MachinesSeen(seen=seen, silent=silent)


def machines_to_ask(plan: SitePlan) -> list[PlannedNode]:
    """Machines with GPUs that the program installs and that are not marked as dead."""
    nodes = plan.machines.nodes if plan.machines is not None else ()
    return [node for node in nodes if node.spec.role == "hgx" and not node.spec.dead]


def evidence(plan: SitePlan, cluster: ClusterSeen, machines: MachinesSeen) -> Iterator[Evidence]:
    """Each node with GPUs of the site; where its file lists none, those that the cluster shows to have some."""
    by_name = {node["metadata"]["name"]: node for node in cluster.nodes}
    classes = {entry["metadata"]["name"] for entry in cluster.runtime_classes}
    operator = _operator_version(cluster.pods)
    for name, wanted in _wanted(plan, cluster.nodes):
        yield Evidence(
            node=name,
            wanted=wanted,
            machine=machines.seen.get(name),
            silent=machines.silent.get(name, ""),
            registered=by_name.get(name),
            pods=[pod for pod in cluster.pods if pod["spec"].get("nodeName") == name],
            has_runtime_class=gpu_nodes.RUNTIME_CLASS in classes,
            operator=operator,
        )


def _wanted(plan: SitePlan, nodes: Sequence[Object]) -> Iterator[tuple[str, WantedOffer]]:
    cluster = plan.site.cluster
    tolerated = [*gpu_node_taints(plan.site), *(OF_WATCHER if plan.site.has_watcher else ())]
    if plan.machines is None:
        for node in nodes:
            labels = node["metadata"].get("labels") or {}
            if gpu_nodes.PCI_LABEL in labels or gpu_nodes.FAMILY_LABEL in labels or _counted(node) or _slices(node):
                resource, count = gpu_nodes.RESOURCE, int(labels.get(_COUNT_LABEL) or _counted(node) or 1)
                # Their count label is that of GPUs, of which none is offered whole.
                if not _counted(node) and (slices := _slices(node)):
                    resource, count = slices
                wanted = WantedOffer(resource=resource, count=count, stack=cluster.gpu_stack, tolerated=tolerated)
                yield node["metadata"]["name"], wanted
        return
    for planned in machines_to_ask(plan):
        profile, extensions = profile_of(planned.keys.mig), planned.schematic.extensions
        pins = getattr(plan.versions.nvidia, "lts" if any("-lts" in name for name in extensions) else "production")
        yield (
            planned.name,
            WantedOffer(
                resource=gpu_nodes.resource_of(profile),
                count=slices_per_node(slice_name(cluster.gpu, profile)),
                stack=cluster.gpu_stack,
                tolerated=tolerated,
                extensions=[name.removeprefix("siderolabs/") for name in extensions],
                driver=pins.driver,
                fabric_manager=pins.fabric_manager,
            ),
        )


def _counted(node: Object) -> int:
    return int((node["status"].get("capacity") or {}).get(gpu_nodes.RESOURCE, 0))


def _slices(node: Object) -> tuple[str, int] | None:
    """The slices that most of a node's GPUs are cut into, with their count."""
    capacity = node["status"].get("capacity") or {}
    counts = [(int(count), name) for name, count in capacity.items() if gpu_nodes.profile_of(name) and int(count)]
    return max(counts)[::-1] if counts else None


def _operator_version(pods: Sequence[Object]) -> str:
    for pod in pods:
        if (pod["metadata"].get("labels") or {}).get("app") == "gpu-operator":
            for container in pod["spec"]["containers"]:
                if tag := _TAG.search(container["image"]):
                    return tag[1]
    return ""
