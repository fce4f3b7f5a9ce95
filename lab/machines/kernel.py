"""What an emulated machine's kernel knows of settings, and how it restarts. No I/O but a look into /proc/sys.

Read from siderolabs/talos v1.13.9, internal/app/machined/pkg/controllers/runtime/kernel_param_spec.go and
internal/app/machined/pkg/runtime/v1alpha1/v1alpha1_sequencer_tasks.go (KexecPrepare), and from siderolabs/pkgs v1.13.0,
kernel/build/config-amd64. Of the platform's own list of settings nothing is read, so that a mistake in it shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lab.machines.config_view import Config
from lab.machines.spec import MachineSpec
from talos.api.results import RebootMode

_PROC = Path("/proc/sys")
# `# CONFIG_... is not set`: NUMA_BALANCING, SCHED_AUTOGROUP, UCLAMP_TASK, DETECT_HUNG_TASK, SOFTLOCKUP_DETECTOR and
# HARDLOCKUP_DETECTOR, LATENCYTOP, STACK_TRACER, MEMORY_FAILURE, MPTCP.
_LEFT_OUT = (
    "kernel/numa_balancing",
    "kernel/sched_autogroup",
    "kernel/sched_util_clamp",
    "kernel/hung_task_",
    "kernel/softlockup_",
    "kernel/hardlockup_",
    "kernel/soft_watchdog",
    "kernel/nmi_watchdog",
    "kernel/watchdog",
    "kernel/latencytop",
    "kernel/stack_tracer_enabled",
    "vm/memory_failure_",
    "vm/enable_soft_offline",
    "net/mptcp/",
)
# Settings that Talos's kernel has by its config, and this machine's may not: KEXEC_CORE, MAGIC_SYSRQ, MODULES, KEYS,
# SECURITY_YAMA, HUGETLBFS, SCHEDSTATS; interfaces, modules and file systems add theirs while they are there.
_BUILT_IN = (
    "kernel/kexec_load_disabled",
    "kernel/sysrq",
    "kernel/modprobe",
    "kernel/modules_disabled",
    "kernel/keys/",
    "kernel/yama/",
    "kernel/sched_schedstats",
    "vm/nr_",
    "dev/",
    "fs/",
    "net/",
    "user/",
)
_KEXEC = "kernel/kexec_load_disabled"


def unknown(config: Config) -> list[str]:
    """Settings of a config for which the kernel has no file, by their paths."""
    return [path for path in (_path(str(key)) for key in config.machine("sysctls", {})) if not _is_known(path)]


def written(config: Config | None) -> Iterator[str]:
    """Ids of KernelParamStatuses: settings that could be written, Talos's own among them."""
    yield "proc.sys.kernel.kptr_restrict"
    for key in config.machine("sysctls", {}) if config else {}:
        if _is_known(_path(str(key))):
            yield f"proc.sys.{key}"


def failure(config: Config) -> str:
    """What Talos's controller logs while it restarts; empty where every setting could be written."""
    paths = unknown(config)
    errors = "".join(f"\\n\\t* open /proc/sys/{path}: no such file or directory" for path in paths)
    count = f"{len(paths)} error{'s' if len(paths) > 1 else ''} occurred:"
    where = '{"component": "controller-runtime", "controller": "runtime.KernelParamSpecController", "error": "'
    return f'controller failed {where}{count}{errors}\\n\\n"}}' if paths else ""


def restarts_by_kexec(config: Config | None, spec: MachineSpec, mode: RebootMode) -> bool:
    """Whether the next kernel is started by the running one, so that no device is reset."""
    if mode is RebootMode.POWERCYCLE or mode is RebootMode.FORCE or spec.secure_boot:
        return False
    settings = {_path(str(key)): str(value) for key, value in (config.machine("sysctls", {}) if config else {}).items()}
    return settings.get(_KEXEC) != "1"


def _path(key: str) -> str:
    """As pkg/machinery/kernel has it: with a dot first, dots and slashes change places."""
    first = next((sign for sign in key if sign in "./"), "/")
    return key.translate(str.maketrans("./", "/.")) if first == "." else key


def _is_known(path: str) -> bool:
    if path.startswith(_LEFT_OUT):
        return False
    return path.startswith(_BUILT_IN) or (_PROC / path).exists()
