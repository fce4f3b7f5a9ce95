"""The node that a machine registers: what its config, its running system and its hardware imply. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network

from floor.taints import Taint, read_taint
from lab.machines import hardware
from lab.machines.config_view import Config
from lab.machines.node_object import NodeFacts
from lab.machines.spec import Hardware, MachineSpec
from lab.machines.state import System

_CONTROL_PLANE_TAINT = Taint(key="node-role.kubernetes.io/control-plane", value="", effect="NoSchedule")
# Without these two loaded, no program finds a GPU.
_DRIVER_MODULES = ("nvidia", "nvidia_uvm")
_KERNEL_PACKAGES = ("nvidia-open-gpu-kernel-modules", "nonfree-kmod-nvidia")
_SIDERO_KERNEL_PACKAGES = tuple(f"siderolabs/{package}" for package in _KERNEL_PACKAGES)
_TOOLKIT, _FABRIC_MANAGER = "nvidia-container-toolkit", "nvidia-fabricmanager"


def node_facts(
    config: Config,
    system: System,
    spec: MachineSpec,
    *,
    name: str,
    boot_id: str,
    missing: frozenset[str] = frozenset(),
    mounts: tuple[str, ...] = (),
) -> NodeFacts:
    """What the kubelet registers, and what Talos then sets of it.

    missing: kernel modules that were not loaded. mounts: folders that are there. As siderolabs/talos@v1.13.9
    internal/app/machined/pkg/controllers/k8s: node_label_spec.go:84-89, node_taint_spec.go:72-92,
    kubelet_spec.go:324-340.
    """
    because = why_no_gpus(config, system, spec.hardware, missing)
    has_gpus = spec.hardware == "hgx-h200" and not because
    # A machine without GPUs that work looks like one without GPUs.
    layout = str(config.machine("nodeLabels", {}).get(hardware.MIG_LAYOUT, ""))
    labels = {key: str(value) for key, value in config.machine("nodeLabels", {}).items()}
    taints = [read_taint(key, str(text)) for key, text in config.machine("nodeTaints", {}).items()]
    registers = [_taint(entry) for entry in config.machine("kubelet.extraConfig.registerWithTaints", ())]
    if config.is_control_plane:
        labels[_CONTROL_PLANE_TAINT.key] = ""
        if not config.cluster("allowSchedulingOnControlPlanes"):
            taints.append(_CONTROL_PLANE_TAINT)
            if all(taint.key != _CONTROL_PLANE_TAINT.key for taint in registers):
                registers.append(_CONTROL_PLANE_TAINT)
    return NodeFacts(
        name=name,
        is_control_plane=config.is_control_plane,
        addresses=tuple(map(str, node_addresses(config, spec.all_addresses))),
        pod_cidr=spec.pod_cidr,
        kubelet_version=config.kubelet_version,
        api_server_version=config.api_server_version if config.is_control_plane else "",
        os_image=f"Talos ({system.talos_version}), emulated",
        boot_id=boot_id,
        capacity=hardware.capacity(spec.hardware, has_gpus=has_gpus, layout=layout),
        kubelet_labels=hardware.kubelet_labels(name, spec.hardware),
        gpu_labels=hardware.gpu_labels(layout) | _driver_labels(system) if has_gpus else {},
        registers_with=tuple(registers),
        labels=labels,
        annotations={key: str(value) for key, value in config.machine("nodeAnnotations", {}).items()},
        taints=tuple(taints),
        mounts=mounts,
        no_gpus_because=because,
    )


def node_addresses(config: Config, addresses: Iterable[IPv4Address]) -> tuple[IPv4Address, ...]:
    """Those of the machine's addresses that the config lets the kubelet use."""
    rules = [str(rule) for rule in config.machine("kubelet.nodeIP.validSubnets", ())]
    allowed = [IPv4Network(rule) for rule in rules if not rule.startswith("!") and ":" not in rule]
    denied = [IPv4Network(rule[1:]) for rule in rules if rule.startswith("!") and ":" not in rule]
    return tuple(
        address
        for address in addresses
        if (not allowed or any(address in subnet for subnet in allowed))
        and not any(address in subnet for subnet in denied)
    )


def pod_cidr_problem(config: Config, spec: MachineSpec) -> str:
    """Why the pod network that the rack gives this machine is not one of the config's; empty where it is."""
    subnets = config.pod_subnets
    if any(IPv4Network(spec.pod_cidr).subnet_of(subnet) for subnet in subnets):
        return ""
    return f"pod network {spec.pod_cidr} is not in cluster.network.podSubnets ({', '.join(map(str, subnets))})"


def loaded_modules(config: Config, system: System, missing: frozenset[str] = frozenset()) -> list[str]:
    """Kernel modules that a machine loads: those of its config, NVIDIA's only where the image has them."""
    has_driver = bool(driver_version(system))
    named = [str(module.get("name")) for module in config.machine("kernel.modules", ())]
    return [name for name in named if name not in missing and (has_driver or not name.startswith("nvidia"))]


def driver_version(system: System) -> str:
    """NVIDIA's, of the kernel modules in the image; empty without any."""
    kernel = [tag for name, tag in system.extensions.items() if name.startswith(_SIDERO_KERNEL_PACKAGES)]
    return _driver(kernel[0]) if kernel else ""


def why_no_gpus(config: Config, system: System, machine: Hardware, lost: frozenset[str] = frozenset()) -> str:
    """Why no GPU of this machine can be used; empty where all can, and for machines that have none."""
    if machine != "hgx-h200":
        return ""
    tags = {name.removeprefix("siderolabs/"): tag for name, tag in system.extensions.items()}
    kernel = [name for name in tags if name.startswith(_KERNEL_PACKAGES)]
    if not kernel:
        return "the image has no NVIDIA kernel modules"
    if len(kernel) > 1:
        return f"the image has more than one set of NVIDIA kernel modules: {', '.join(sorted(kernel))}"
    fork, driver = kernel[0].rpartition("-")[2], _driver(tags[kernel[0]])
    for package in (_TOOLKIT, _FABRIC_MANAGER):
        present = [name for name in tags if name.startswith(f"{package}-")]
        if not present:
            return f"the image has no {package}"
        if present != [f"{package}-{fork}"]:
            return f"{', '.join(sorted(present))} is another fork than {kernel[0]}"
        if _driver(tags[present[0]]) != driver:
            return f"{present[0]} is for driver {_driver(tags[present[0]])}, {kernel[0]} is {driver}"
    configured, loaded = loaded_modules(config, system), loaded_modules(config, system, lost)
    for module in _DRIVER_MODULES:
        if module not in configured:
            return f"the config does not load kernel module {module}"
        if module not in loaded:
            return f"kernel module {module} is not loaded"
    return ""


def _driver(tag: str) -> str:
    return tag.removeprefix("v").partition("-")[0]


def _driver_labels(system: System) -> dict[str, str]:
    tag = next(tag for name, tag in system.extensions.items() if name.startswith(f"siderolabs/{_FABRIC_MANAGER}-"))
    major, minor, revision = (*_driver(tag).split("."), "", "")[:3]
    start = "nvidia.com/cuda.driver-version"
    return {
        f"{start}.full": _driver(tag),
        f"{start}.major": major,
        f"{start}.minor": minor,
        f"{start}.revision": revision,
    }


def _taint(entry: Mapping[str, str]) -> Taint:
    return Taint(key=entry["key"], value=entry.get("value", ""), effect=entry["effect"])
