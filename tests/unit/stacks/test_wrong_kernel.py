"""Kernel settings and arguments that the kernel takes and the platform does not survive: each is refused."""

from __future__ import annotations

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

S = f"{M}.sysctls"
A = f"{M}.kernel_args"


def sysctl(name: str, value: str, what: str, right: str) -> Wrong:
    return Wrong({S: {name: value}}, f"{S}.{name}", what, {S: {name: right}})


def argument(text: str, what: str) -> Wrong:
    return Wrong({A: ["console=ttyS1", text]}, f"{A}.1", what, {A: ["console=ttyS1"]})


WRONG: dict[str, Wrong] = {
    "no forwarding": sysctl("net.ipv4.ip_forward", "0", "no packet reaches a pod", "1"),
    "no forwarding by its path": sysctl("net/ipv4/ip_forward", "0", "no packet reaches a pod", "1"),
    "few process numbers": sysctl("kernel.pid_max", "1000", "allowed: 32768 or more", "32768"),
    "few files": sysctl("fs.file-max", "100", "allowed: 65536 or more", "65536"),
    "memory that the kubelet refuses": sysctl("vm.overcommit_memory", "2", "the kubelet does not start", "1"),
    "panic that the kubelet refuses": sysctl("kernel.panic", "0", "the kubelet does not start", "10"),
    "setting that Talos lacks": Wrong(
        {S: {"kernel.numa_balancing": "0"}},
        f"{S}.kernel.numa_balancing",
        "does not exist on Talos: CONFIG_NUMA_BALANCING is off",
        {S: {}},
    ),
    "setting that Talos lacks, by its path": Wrong(
        {f"{M}.roles.hgx.sysctls": {"kernel/hung_task_timeout_secs": "0"}},
        f"{M}.roles.hgx.sysctls.kernel/hung_task_timeout_secs",
        "CONFIG_DETECT_HUNG_TASK is off",
        {f"{M}.roles.hgx.sysctls": {}},
    ),
    "a reboot that resets no GPU": Wrong(
        {f"{M}.roles.hgx.sysctls": {"kernel.kexec_load_disabled": "0"}},
        f"{M}.roles.hgx.sysctls.kernel.kexec_load_disabled",
        "resets neither GPUs, NVSwitches nor network cards",
        {f"{M}.roles.worker.sysctls": {"kernel.kexec_load_disabled": "0"}, f"{M}.roles.hgx.sysctls": {}},
    ),
    "huge pages in bytes": Wrong(
        {f"{M}.roles.worker.sysctls": {"vm.nr_hugepages": "1099511627776"}},
        f"{M}.roles.worker.sysctls.vm.nr_hugepages",
        "beyond 16 TiB",
        {f"{M}.roles.worker.sysctls": {"vm.nr_hugepages": "0"}},
    ),
    "huge pages beside the profile's": Wrong(
        {f"{M}.roles.hgx.sysctls": {"vm.nr_hugepages": "1024"}},
        f"{M}.roles.hgx.sysctls.vm.nr_hugepages",
        "hgx.huge_pages_2mib",
        {f"{M}.roles.hgx.sysctls": {}, f"{M}.hgx.huge_pages_2mib": 1536},
    ),
    "huge pages of the profile in bytes": Wrong(
        {f"{M}.hgx.huge_pages_2mib": 1099511627776},
        f"{M}.hgx.huge_pages_2mib",
        "more memory than a server has",
        {f"{M}.hgx.huge_pages_2mib": 512},
    ),
    "wipe at each start": argument("talos.experimental.wipe=system", "each start would erase"),
    "halt once installed": argument("talos.halt_if_installed=1", "halts at each start"),
    "a second driver": Wrong(
        {f"{M}.roles.hgx.extensions": ["siderolabs/nvidia-open-gpu-kernel-modules-production"]},
        f"{M}.roles.hgx.extensions.0",
        "which hgx.modules and hgx.fork choose",
        {f"{M}.roles.hgx.extensions": ["siderolabs/intel-ucode"]},
    ),
    "the module of another network driver": Wrong(
        {f"{M}.roles.hgx.kernel_modules": ["nvidia-peermem"]},
        f"{M}.roles.hgx.kernel_modules.0",
        "does not load",
        {f"{M}.roles.hgx.kernel_modules": []},
    ),
    "own init": argument("init=/bin/sh", "Talos itself is the first program"),
    "other platform": argument("talos.platform=aws", "images for metal"),
    "no platform": argument("-talos.platform", "images for metal"),
    "config from elsewhere": argument("talos.config=http://x.example/config", "`up` sends each machine its config"),
    "hidden memory": argument("mem=4G", "hides memory"),
    "cgroup v1": argument("systemd.unified_cgroup_hierarchy=0", "cgroup v1"),
    "cgroup v1 by Talos": argument("talos.unified_cgroup_hierarchy=0", "cgroup v1"),
    "GPUs without a driver": Wrong(
        {f"{M}.roles.hgx.kernel_args": ["module_blacklist=nouveau,nvidia_uvm"]},
        f"{M}.roles.hgx.kernel_args.0",
        "keeps NVIDIA's driver off",
        {f"{M}.roles.hgx.kernel_args": ["module_blacklist=nouveau"]},
    ),
    "pages of another size on nodes with GPUs": Wrong(
        {f"{M}.roles.hgx.kernel_args": ["hugepagesz=1G"]},
        f"{M}.roles.hgx.kernel_args.0",
        "count these pages in hgx.huge_pages_2mib",
        {f"{M}.roles.hgx.kernel_args": None},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_kernel_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


def test_what_a_kernel_takes_is_valid() -> None:
    change = {
        f"{M}.sysctls": {"net.ipv4.ip_forward": "1", "kernel.pid_max": "4194304", "vm.max_map_count": "1048576"},
        f"{M}.kernel_args": ["-init_on_alloc", "init_on_free=0", "talos.unified_cgroup_hierarchy=1"],
        f"{M}.roles.worker.kernel_args": ["module_blacklist=nvidia"],
        f"{M}.roles.worker.sysctls": {"vm.nr_hugepages": "1024"},
    }
    assert plan_values(changed(prod(), change), "site.yaml").site
