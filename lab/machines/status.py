"""What an emulated machine reports: its services, its stage with unmet conditions, and the content of its image."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.machines.failing import NOT_AUTHORIZED, refusal
from lab.machines.kernel import written
from lab.machines.methods import ADMIN
from lab.machines.node_facts import driver_version, loaded_modules
from lab.machines.volumes import disks
from talos.api.errors import Code
from talos.api.messages import new
from talos.api.results import STAGES

if TYPE_CHECKING:
    from lab.machines.machine import Machine

# Ids and specs of resources.
_Named = Iterator[tuple[str, Any]]
_MACHINE_CONFIGS = "MachineConfigs.config.talos.dev"
_RUNNING, _PREPARING, _WAITING = "Running", "Preparing", "Waiting"
_NVIDIA_SERVICES = {
    "nvidia-container-toolkit": ("nvidia-persistenced", "nvidia-cdi-gen"),
    "nvidia-fabricmanager": ("nvidia-fabricmanager",),
}


@dataclass(frozen=True)
class ServiceStatus:
    """One of Talos's services; `healthy` is None for those without a health check."""

    id: str
    state: str
    healthy: bool | None
    message: str = ""


def services(machine: Machine) -> list[ServiceStatus]:
    """Talos's services as they are now, by name."""

    down = machine.faults.services_down()

    def service(name: str, waits_for: str = "", *, up: bool, checked: bool = True) -> ServiceStatus:
        if up and name in down:
            return ServiceStatus(name, _WAITING, None, f"Error running {name}, going to restart forever: on request")
        if up:
            return ServiceStatus(name, _RUNNING, True if checked else None)
        return ServiceStatus(name, _PREPARING if name == "etcd" else _WAITING, None, waits_for)

    statuses = [
        service("apid", up=True),
        service("containerd", up=True),
        service("machined", up=True),
        service("syslogd", up=True),
    ]
    statuses += [service("udevd", up=True), service("dashboard", up=True, checked=False)]
    if machine.config is not None and machine.config.complete:
        statuses += [service("cri", "waiting for volumes", up=machine.cri_up)]
        statuses += [service("kubelet", "waiting for service etcd to be up", up=machine.kubelet_up)]
        statuses += [
            service(f"ext-{extension}", "waiting for cri", up=machine.cri_up, checked=False)
            for extension in _extension_services(machine)
        ]
    if machine.config is not None and machine.config.is_control_plane:
        statuses += [
            service("etcd", "waiting to join the cluster", up=machine.etcd_up),
            service("trustd", up=machine.cri_up),
        ]
    return sorted(statuses, key=lambda status: status.id)


def kernel_files(machine: Machine) -> dict[str, str]:
    """Path -> content of what its kernel shows of its modules."""
    modules = (
        []
        if machine.config is None
        else loaded_modules(machine.config, machine.running_system, machine.faults.modules_missing())
    )
    files = {"/proc/modules": "".join(f"{name} 16384 0 - Live 0x0000000000000000 (O)\n" for name in modules)}
    if "nvidia" in modules and machine.spec.hardware == "hgx-h200":
        version = driver_version(machine.running_system)
        files["/proc/driver/nvidia/version"] = (
            f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (emulated)\n"
        )
    return files


def resources(machine: Machine, kind: str, roles: frozenset[str]) -> Iterator[Any]:
    """The COSI resources of a type; none for types that are not emulated.

    Raises the refusal of Talos v1.13.9 for a sensitive type and a caller who is no administrator
    (internal/app/resources/access.go).
    """
    if kind == _MACHINE_CONFIGS and ADMIN not in roles:
        raise refusal(Code.PERMISSION_DENIED, NOT_AUTHORIZED)
    for name, spec in _RESOURCES[kind](machine) if kind in _RESOURCES else ():
        yield _resource(kind, name, spec, namespace="config" if kind == _MACHINE_CONFIGS else "runtime")


def _machine_status(machine: Machine) -> _Named:
    unmet = unmet_conditions(machine)
    conditions = [{"name": name, "reason": reason} for name, reason in unmet]
    status = {"ready": not unmet, "unmet_conditions": conditions}
    yield "machine", new("runtime.MachineStatusSpec", stage=STAGES.index(machine.stage), status=status)


def _extension_statuses(machine: Machine) -> _Named:
    system = machine.running_system
    extensions = {name.removeprefix("siderolabs/"): tag for name, tag in system.extensions.items()}
    for place, (name, version) in enumerate({**extensions, "schematic": system.schematic}.items()):
        metadata = {"name": name, "version": version}
        yield str(place), new("runtime.ExtensionStatusSpec", image=f"{place}.sqsh", metadata=metadata)


def _security_state(machine: Machine) -> _Named:
    key = "emulated" if machine.is_signed else ""
    state = {"secure_boot": machine.spec.secure_boot, "booted_with_uki": True, "pcr_signing_key_fingerprint": key}
    yield "securitystate", new("runtime.SecurityStateSpec", **state)


def _volume_statuses(machine: Machine) -> _Named:
    for volume in machine.volumes.values():
        yield volume.id, new("block.VolumeStatusSpec", **volume.fields())


def _disks(machine: Machine) -> _Named:
    for disk, fields in disks(machine.config, machine.spec):
        yield disk, new("block.DiskSpec", **fields)


def _kernel_params(machine: Machine) -> _Named:
    for name in written(machine.config):
        yield name, new("runtime.KernelParamStatusSpec")


def _machine_config(machine: Machine) -> _Named:
    if machine.config is not None:
        yield "v1alpha1", new("config.MachineConfigSpec", yaml_marshalled=machine.config.source)


_RESOURCES: dict[str, Callable[[Machine], _Named]] = {
    "MachineStatuses.runtime.talos.dev": _machine_status,
    "ExtensionStatuses.runtime.talos.dev": _extension_statuses,
    "SecurityStates.talos.dev": _security_state,
    "VolumeStatuses.block.talos.dev": _volume_statuses,
    "Disks.block.talos.dev": _disks,
    "KernelParamStatuses.runtime.talos.dev": _kernel_params,
    _MACHINE_CONFIGS: _machine_config,
}


def unmet_conditions(machine: Machine) -> list[tuple[str, str]]:
    """What keeps the machine from being ready, as condition and reason; only asked while booting and running."""
    if machine.stage not in {"booting", "running"}:
        return []
    unmet = []
    if machine.faults.clock_skew_s():
        unmet.append(("time", "time is not synced"))
    running = services(machine)
    problems = [f"{service.id} not running" for service in running if service.state != _RUNNING]
    if machine.config is None:
        problems.append("kubelet not running")
    if problems:
        unmet.append(("services", ", ".join(problems)))
    config = machine.config
    registers = config is not None and not config.machine("kubelet.skipNodeRegistration")
    if registers and not machine.node_is_ready:
        unmet.append(("nodeReady", f'node "{machine.hostname}" status is not available yet'))
    return unmet


def _extension_services(machine: Machine) -> list[str]:
    names = [name.removeprefix("siderolabs/") for name in machine.running_system.extensions]
    return [
        service
        for package, started in _NVIDIA_SERVICES.items()
        if any(name.startswith(f"{package}-") for name in names)
        for service in started
    ] + (["iscsid", "tgtd"] if "iscsi-tools" in names else [])


def _resource(kind: str, name: str, spec: Any, namespace: str = "runtime") -> Any:
    now = {"seconds": int(time.time())}
    metadata = {
        "namespace": namespace,
        "type": kind,
        "id": name,
        "version": "1",
        "owner": "emulated",
        "phase": "running",
        "created": now,
        "updated": now,
    }
    return new("cosi.resource.Resource", metadata=metadata, spec={"proto_spec": spec.SerializeToString()})
