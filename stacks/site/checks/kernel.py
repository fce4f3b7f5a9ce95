"""Kernel settings and arguments with which Talos, the kubelet or the GPUs do not work."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from floor.problems import Path, Problem, shown
from stacks.site.reading.levels import LEVELS, MACHINES, SiteMachine, machines_of
from stacks.site.reading.raw import at, items, mapping, matching
from talos.hgx import is_driver

_HGX = (*MACHINES, "hgx")
_HUGE_PAGES = (*_HGX, "huge_pages_2mib")
_PAGES = "vm.nr_hugepages"
# 16 TiB of pages of 2 MiB: more memory than a server has.
_MOST_PAGES = 8 * 1024**2


class _Bounds(NamedTuple):
    """Least and most of a setting, and what happens otherwise."""

    least: int
    most: int | None
    why: str


def _exactly(value: int) -> _Bounds:
    return _Bounds(value, value, "the kubelet does not start with another value, as Talos has it protect the kernel's")


_SYSCTLS: Mapping[str, _Bounds] = {
    "net.ipv4.ip_forward": _Bounds(1, 1, "without it no packet reaches a pod"),
    "net.ipv4.conf.all.forwarding": _Bounds(1, 1, "without it no packet reaches a pod"),
    "kernel.pid_max": _Bounds(32768, None, "all pods of a node share these numbers, and one engine has hundreds"),
    "fs.file-max": _Bounds(65536, None, "all programs of a node share these files"),
    "vm.overcommit_memory": _exactly(1),
    "vm.panic_on_oom": _exactly(0),
    "kernel.panic": _exactly(10),
    "kernel.panic_on_oops": _exactly(1),
    "kernel.keys.root_maxkeys": _exactly(1_000_000),
    "kernel.keys.root_maxbytes": _exactly(25_000_000),
    _PAGES: _Bounds(0, _MOST_PAGES, "these are pages of 2 MiB, so more is beyond 16 TiB"),
}
# Settings that the kernel of Talos lacks, by name or by their start: the option that it is built without
# (siderolabs/pkgs, kernel/build/config-amd64), or where Linux has put them.
_ABSENT: Mapping[str, str] = {
    "kernel.numa_balancing": "CONFIG_NUMA_BALANCING is off",
    "kernel.sched_autogroup_enabled": "CONFIG_SCHED_AUTOGROUP is off",
    "kernel.sched_util_clamp_": "CONFIG_UCLAMP_TASK is off",
    "kernel.hung_task_": "CONFIG_DETECT_HUNG_TASK is off",
    "kernel.softlockup_": "CONFIG_SOFTLOCKUP_DETECTOR is off",
    "kernel.hardlockup_": "CONFIG_HARDLOCKUP_DETECTOR is off",
    "kernel.soft_watchdog": "CONFIG_SOFTLOCKUP_DETECTOR is off",
    "kernel.nmi_watchdog": "CONFIG_HARDLOCKUP_DETECTOR is off",
    "kernel.watchdog": "both lockup detectors are off",
    "kernel.latencytop": "CONFIG_LATENCYTOP is off",
    "kernel.stack_tracer_enabled": "CONFIG_STACK_TRACER is off",
    "vm.memory_failure_": "CONFIG_MEMORY_FAILURE is off",
    "vm.enable_soft_offline": "CONFIG_MEMORY_FAILURE is off",
    "net.mptcp.": "CONFIG_MPTCP is off",
    "kernel.sched_latency_ns": "Linux has it in debugfs since 5.13",
    "kernel.sched_min_granularity_ns": "Linux has it in debugfs since 5.13",
    "kernel.sched_wakeup_granularity_ns": "Linux has it in debugfs since 5.13",
    "kernel.sched_migration_cost_ns": "Linux has it in debugfs since 5.13",
    "kernel.sched_nr_migrate": "Linux has it in debugfs since 5.13",
    "net.ipv4.tcp_tw_recycle": "Linux has dropped it with 4.12",
}
# Kernel argument -> values with which it does harm (None is any), and the reason.
_ARGUMENTS: Mapping[str, tuple[str | None, str]] = {
    "init": (None, "Talos itself is the first program, and nothing else starts a machine"),
    "rdinit": (None, "Talos itself is the first program, and nothing else starts a machine"),
    "talos.platform": (None, "image_factory builds images for metal"),
    "talos.config": (None, "`up` sends each machine its config, and another one would win at the first boot"),
    # Talos reads both at each start, of its own disk as well (runtime/v1alpha1/v1alpha1_sequencer.go).
    "talos.experimental.wipe": (None, "each start would erase the machine's system disk, with its config"),
    "talos.halt_if_installed": (None, "once Talos is on its disk, the machine halts at each start"),
    "mem": (None, "it hides memory that models are placed by"),
    "systemd.unified_cgroup_hierarchy": ("0", "the kubelet does not start on cgroup v1"),
    "talos.unified_cgroup_hierarchy": ("0", "the kubelet does not start on cgroup v1"),
}
_KEXEC = "kernel.kexec_load_disabled"
_PAGE_ARGUMENTS = frozenset({"hugepages", "hugepagesz", "default_hugepagesz"})
_BLACKLISTS = frozenset({"module_blacklist", "modprobe.blacklist", "rd.driver.blacklist"})


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything that the kernel would take and the platform does not survive."""
    machines = at(values, *MACHINES)
    for level in LEVELS:
        for path, value in matching(machines, f"{level}sysctls.<name>"):
            yield from _of_sysctl((*MACHINES, *path), path[-1], value)
        for path, argument in matching(machines, f"{level}kernel_args.<name>"):
            yield from _of_argument((*MACHINES, *path), argument)
    yield from _of_huge_pages(values)
    yield from _of_gpu_nodes(values)


def _of_sysctl(path: Path, name: str, value: Any) -> Iterator[Problem]:
    if why := next((why for start, why in _ABSENT.items() if _dotted(name).startswith(start)), ""):
        what = f"does not exist on Talos: {why}, and the machine reports the failure for as long as it runs"
        yield Problem(path=path, what=what, got=shown(name), fix="take it out")
        return
    bounds = _SYSCTLS.get(_dotted(name))
    if bounds is None or not isinstance(value, str) or not re.fullmatch(r"\s*-?[0-9]+\s*", value):
        return
    least, most, why = bounds
    if least <= int(value) and (most is None or int(value) <= most):
        return
    allowed = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
    what = f"is out of its range: {why}"
    yield Problem(path=path, what=what, got=shown(value), allowed=allowed, fix=f'write "{least}", or take it out')


def _of_argument(path: Path, argument: Any) -> Iterator[Problem]:
    if not isinstance(argument, str):
        return
    name, _, value = argument.partition("=")
    # A dash takes an argument out of the image, and Talos does not start without its platform.
    harmful, why = _ARGUMENTS.get("talos.platform" if name == "-talos.platform" else name, ("", ""))
    if why and harmful in (None, value):
        yield Problem(path=path, what=f"does not work here: {why}", got=shown(argument), fix="take it out")


def _of_huge_pages(values: Mapping[str, Any]) -> Iterator[Problem]:
    pages = at(values, *_HUGE_PAGES)
    if isinstance(pages, int) and pages > _MOST_PAGES:
        yield Problem(
            path=_HUGE_PAGES,
            what="is more memory than a server has: these are pages of 2 MiB",
            got=str(pages),
            allowed=f"0 to {_MOST_PAGES}, which is 16 TiB",
            fix="write the count of pages, not of bytes: 512 is 1 GiB",
        )


def _of_gpu_sysctls(machine: SiteMachine, *, counted: bool) -> Iterator[Problem]:
    """counted: whether the hgx profile sets pages aside."""
    for name, value in mapping(machine.keys.get("sysctls")).items():
        if _dotted(str(name)) == _KEXEC and str(value).strip() != "1":
            yield Problem(
                path=machine.path("sysctls", str(name)),
                what="lets a reboot be a kexec, which resets neither GPUs, NVSwitches nor network cards",
                got=shown(value),
                allowed="1, which hgx machines have without it",
                fix="take it out",
            )
        if _dotted(str(name)) == _PAGES and counted:
            yield Problem(
                path=machine.path("sysctls", str(name)),
                what="takes the place of the pages that hgx sets aside for itself and for Longhorn",
                fix="take it out, and count these pages in hgx.huge_pages_2mib",
            )


def _of_gpu_nodes(values: Mapping[str, Any]) -> Iterator[Problem]:
    machines = mapping(at(values, *MACHINES))
    from_profile = at(values, *_HUGE_PAGES) or at(values, *_HGX, "storage", "engine") == "v2"
    for machine in machines_of(machines):
        if machine.role != "hgx":
            continue
        for index, extension in enumerate(items(machine.keys.get("extensions"))):
            if isinstance(extension, str) and is_driver(extension):
                yield Problem(
                    path=machine.path("extensions", str(index)),
                    what="is a part of NVIDIA's driver, which hgx.modules and hgx.fork choose: with parts of two, the "
                    "image has both, and no GPU starts",
                    got=shown(extension),
                    fix="take it out, and set hgx.modules and hgx.fork",
                )
        for index, module in enumerate(items(machine.keys.get("kernel_modules"))):
            if str(module).replace("-", "_") == "nvidia_peermem":
                yield Problem(
                    path=machine.path("kernel_modules", str(index)),
                    what="does not load beside the kernel's own mlx5 modules, and Talos has no others",
                    got=shown(module),
                    fix="take it out; hgx.gpu_direct: dma-buf is how network cards reach GPU memory",
                )
        yield from _of_gpu_sysctls(machine, counted=bool(from_profile))
        for index, argument in enumerate(items(machine.keys.get("kernel_args"))):
            name, _, modules = str(argument).partition("=")
            if name in _PAGE_ARGUMENTS:
                yield Problem(
                    path=machine.path("kernel_args", str(index)),
                    what="sets pages aside before hgx counts its own, and may change their size",
                    got=shown(argument),
                    fix="take it out, and count these pages in hgx.huge_pages_2mib",
                )
            if name in _BLACKLISTS and any(module.startswith("nvidia") for module in modules.split(",")):
                yield Problem(
                    path=machine.path("kernel_args", str(index)),
                    what="keeps NVIDIA's driver off nodes with GPUs",
                    got=shown(argument),
                    fix="take it out",
                )


def _dotted(name: str) -> str:
    return name.replace("/", ".")
