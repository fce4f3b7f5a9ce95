"""The signs of the states of a node with GPUs: each function gives what was seen of one, or nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from floor import gpu_nodes
from floor.releases import numbers
from sitectl.live.gpu_evidence import Evidence, Object
from talos.factory.extensions import FABRIC_MANAGER, KERNEL_MODULES, TOOLKIT
from talos.hgx import FABRIC_MANAGER_SERVICE, required_services

# The first operator whose validator finds a driver that Talos brings (NVIDIA/gpu-operator#1687, #2239).
_KNOWS_TALOS = "v26.3.1"
_OS_VERSION = "feature.node.kubernetes.io/system-os_release.VERSION_ID"
_GPU_PRESENT = "nvidia.com/gpu.present"
# Without these two, no program finds a GPU.
_NEEDED_MODULES = ("nvidia", "nvidia_uvm")
_PACKAGES = (*KERNEL_MODULES, TOOLKIT, FABRIC_MANAGER)
_NVIDIA_SERVICE = "ext-nvidia-"
_WELL = ("Running", "Finished", "Skipped")
_LIBRARIES = ("libnvidia-ml.so", "libcuda.so", "/usr/local/glibc")
# A DaemonSet tolerates what Kubernetes itself taints a node with.
_BY_KUBERNETES = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_REPELLING = ("NoSchedule", "NoExecute")
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")
_BEING_MADE = ("PodInitializing", "ContainerCreating")
_VALIDATOR = {"app": "nvidia-operator-validator"}
# By the operator, and by the chart of the device plugin alone.
_PLUGINS = ({"app": "nvidia-device-plugin-daemonset"}, {"app.kubernetes.io/name": "nvidia-device-plugin"})


def silent(node: Evidence) -> str:
    """Why the machine's API does not answer."""
    return node.silent


def extension_missing(node: Evidence) -> str:
    """NVIDIA's extensions of the schematic that the running image does not have."""
    if node.machine is None:
        return ""
    wanted = [name for name in node.wanted.extensions if name.startswith(_PACKAGES)]
    return ", ".join(name for name in wanted if name not in node.machine.extensions)


def versions_differ(node: Evidence) -> str:
    """How driver, extension, pin and Talos differ."""
    machine = node.machine
    if machine is None:
        return ""
    for name, version in machine.extensions.items():
        if not name.startswith(KERNEL_MODULES):
            continue
        driver, _, talos = version.partition("-")
        if machine.driver and machine.driver != driver:
            return f"{name} is {driver}, the kernel has driver {machine.driver}"
        if talos.startswith("v") and talos != machine.talos:
            return f"{name} is for Talos {talos}, the machine runs {machine.talos}"
        if node.wanted.driver and driver != node.wanted.driver:
            return f"{name} is {driver}, the pinned driver is {node.wanted.driver}"
    return ""


def modules_missing(node: Evidence) -> str:
    """Kernel modules without which no program finds a GPU."""
    if node.machine is None:
        return ""
    missing = [name for name in _NEEDED_MODULES if name not in node.machine.modules]
    return f"not loaded: {', '.join(missing)}" if missing else ""


def fabric_manager_differs(node: Evidence) -> str:
    """The fabric manager of another version than the driver."""
    for name, version in node.machine.extensions.items() if node.machine else ():
        if name.startswith(FABRIC_MANAGER) and node.wanted.fabric_manager not in version:
            return f"{name} is {version}, the driver is {node.wanted.driver}"
    return ""


def fabric_manager_down(node: Evidence) -> str:
    """The state of the fabric manager where the image has it."""
    if node.machine is None or not required_services(node.machine.extensions):
        return ""
    state = node.machine.services.get(FABRIC_MANAGER_SERVICE, "not there")
    return "" if state == "Running" else f"{FABRIC_MANAGER_SERVICE} is {state}"


def service_down(node: Evidence) -> str:
    """Other services of NVIDIA's extensions that are not well."""
    services = node.machine.services if node.machine else {}
    own = {name: state for name, state in services.items() if name.startswith(_NVIDIA_SERVICE)}
    return ", ".join(f"{name} is {state}" for name, state in own.items() if state not in _WELL)


def node_away(node: Evidence) -> str:
    """The node is not there or not Ready."""
    if node.registered is None:
        return "the cluster has no node of this name"
    conditions = node.registered["status"].get("conditions") or ()
    ready = next((entry["status"] for entry in conditions if entry["type"] == "Ready"), "unknown")
    return "" if ready == "True" else f"Ready is {ready}"


def taint(node: Evidence) -> str:
    """Taints that the site does not name, of a node that does not offer its GPUs."""
    answered = {(taint.key, taint.effect) for taint in node.wanted.tolerated}
    taints = (node.registered or {}).get("spec", {}).get("taints") or ()
    foreign = [
        f"{taint['key']}:{taint['effect']}"
        for taint in taints
        if taint["effect"] in _REPELLING
        and not taint["key"].startswith(_BY_KUBERNETES)
        and (taint["key"], taint["effect"]) not in answered
    ]
    return "" if node.offers_all else ", ".join(foreign)


def not_discovered(node: Evidence) -> str:
    """Node feature discovery has not found the GPU."""
    is_found = node.offers_all or node.labels.get(gpu_nodes.PCI_LABEL) == "true"
    return "" if is_found else f"no label {gpu_nodes.PCI_LABEL}"


def version_with_v(node: Evidence) -> str:
    """The version of the system as an old operator cannot read it."""
    version = node.labels.get(_OS_VERSION, "")
    return f"{_OS_VERSION} is {version}" if version.startswith("v") and _is_old(node) else ""


def not_taken_by_operator(node: Evidence) -> str:
    """The operator has not labelled a node that was discovered."""
    is_taken = node.wanted.stack != "operator" or node.labels.get(_GPU_PRESENT) == "true"
    return "" if node.offers_all or is_taken else f"no label {_GPU_PRESENT}"


def no_runtime_class(node: Evidence) -> str:
    """The class that replicas run in is not there."""
    return "" if node.has_runtime_class else f"no RuntimeClass {gpu_nodes.RUNTIME_CLASS}"


def not_begun(node: Evidence) -> str:
    """A pod of the stack whose image is not there, or that is being made."""
    for pod in () if node.offers_all else _pods(node, _VALIDATOR, *_PLUGINS):
        statuses = [*(pod["status"].get("initContainerStatuses") or ()), *_main(pod)]
        if not statuses:
            return f"{pod['metadata']['name']}: {pod['status'].get('phase')}"
        for place, status in enumerate(statuses):
            reason = ((status.get("state") or {}).get("waiting") or {}).get("reason", "")
            if reason in _NO_IMAGE or (place == 0 and reason in _BEING_MADE):
                return f"{pod['metadata']['name']}, {status['name']}: {reason}"
    return ""


def libraries_not_found(node: Evidence) -> str:
    """What a container of the stack states of a library of the driver, on a node that does not offer its GPUs."""
    for pod in () if node.offers_all else _pods(node, _VALIDATOR, *_PLUGINS):
        for container, message in _messages(pod):
            if any(library in message for library in _LIBRARIES):
                return f"{pod['metadata']['name']}, {container}: {message[:200]}"
    return ""


def waits_for_driver(node: Evidence) -> str:
    """The validation of the driver, where it has not passed."""
    return _unfinished(node, "driver-validation")


def old_validator_waits(node: Evidence) -> str:
    """The validation of driver or toolkit that has not passed, by an operator that never finds Talos's driver."""
    waits = _unfinished(node, "driver-validation") or _unfinished(node, "toolkit-validation")
    return f"operator {node.operator}: {waits}" if waits and _is_old(node) else ""


def waits_for_toolkit(node: Evidence) -> str:
    """The validation of the container toolkit, where it has not passed."""
    return _unfinished(node, "toolkit-validation")


def cuda_fails(node: Evidence) -> str:
    """The validation of CUDA, where it has not passed."""
    return _unfinished(node, "cuda-validation")


def no_plugin(node: Evidence) -> str:
    """No pod of the device plugin, of a stack that the program installs."""
    if node.offers_all or node.wanted.stack == "external" or _pods(node, *_PLUGINS):
        return ""
    return "no pod of the device plugin on the node"


def plugin_fails(node: Evidence) -> str:
    """Why the device plugin's pod is not ready."""
    for pod in _pods(node, *_PLUGINS):
        if not node.offers_all and (unready := [text for text in _not_ready(pod) if text]):
            return f"{pod['metadata']['name']}: {', '.join(unready)}"
    return ""


def slices_missing(node: Evidence) -> str:
    """Slices of a layout that are not offered."""
    return "" if node.offers_all or not gpu_nodes.profile_of(node.wanted.resource) else _counts(node)


def gpus_unhealthy(node: Evidence) -> str:
    """GPUs that the device plugin does not offer any more."""
    return _counts(node) if node.quantity("allocatable") < min(node.quantity("capacity"), node.wanted.count) else ""


def fewer_gpus(node: Evidence) -> str:
    """GPUs that the device plugin never offered."""
    return "" if node.offers_all else _counts(node)


def not_labelled(node: Evidence) -> str:
    """GPU feature discovery has not labelled the node."""
    return "" if gpu_nodes.FAMILY_LABEL in node.labels else f"no label {gpu_nodes.FAMILY_LABEL}"


def _counts(node: Evidence) -> str:
    capacity, allocatable = node.quantity("capacity"), node.quantity("allocatable")
    return f"{allocatable} of {node.wanted.count} {node.wanted.resource} allocatable, capacity {capacity}"


def _is_old(node: Evidence) -> bool:
    return bool(node.operator) and numbers(node.operator) < numbers(_KNOWS_TALOS)


def _pods(node: Evidence, *selectors: dict[str, str]) -> list[Object]:
    return [pod for pod in node.pods if any(_has(pod, labels) for labels in selectors)]


def _has(pod: Object, labels: dict[str, str]) -> bool:
    return labels.items() <= (pod["metadata"].get("labels") or {}).items()


def _unfinished(node: Evidence, container: str) -> str:
    """What an init container of the validator waits with or fails with; empty where it has passed or not begun."""
    for pod in _pods(node, _VALIDATOR):
        for status in pod["status"].get("initContainerStatuses") or ():
            if status["name"] == container and (text := _state_of(status)):
                return f"{pod['metadata']['name']}, {container}: {text}"
    return ""


def _state_of(status: Object) -> str:
    """Why a container is not done; empty where it is, and where another one comes first."""
    state = status.get("state") or {}
    if ended := state.get("terminated"):
        return "" if ended.get("exitCode") == 0 else f"ended with {ended.get('exitCode')}"
    if waiting := state.get("waiting"):
        reason = str(waiting.get("reason", ""))
        return "" if reason == "PodInitializing" else reason
    return "runs, and is not done" if "running" in state else ""


def _not_ready(pod: Object) -> Iterator[str]:
    for status in (*(pod["status"].get("initContainerStatuses") or ()), *_main(pod)):
        text = _state_of(status)
        yield f"{status['name']} {text}" if text and not status.get("ready") else ""


def _main(pod: Object) -> Sequence[Object]:
    return pod["status"].get("containerStatuses") or ()


def _messages(pod: Object) -> Iterator[tuple[str, str]]:
    """(container, what the runtime or the program stated), of all that did not end well."""
    for status in (*(pod["status"].get("initContainerStatuses") or ()), *_main(pod)):
        for state in (status.get("state") or {}, status.get("lastState") or {}):
            for detail in (state.get("waiting"), state.get("terminated")):
                if detail and detail.get("message"):
                    yield status["name"], str(detail["message"])
