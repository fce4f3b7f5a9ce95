"""The lab's own network: one namespace with the pod bridge, connected to the host by one veth pair and one route.

Everything that a lab changes lives in this namespace and the pods' namespaces, so taking a lab down is ending their
processes and deleting them. The host keeps no firewall rule and no sysctl of ours. The uplink's alias names the folder
of the lab that owns it: a record that cannot outlive what it describes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from lab.cluster import processes
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab

MARK = "INFERENCE_LAB"
_NAMESPACES = Path("/run/netns")
_LINK_INSIDE = "uplink"
_KILL_ROUNDS = 20
_DETACH = 2  # MNT_DETACH of umount2(2)


def uplink(lab: Lab) -> str:
    """Name of the uplink's host end."""
    return f"{lab.prefix}-uplink"


def inside(lab: Lab, argv: list[str]) -> list[str]:
    """The same command inside the lab's namespace.

    nsenter and not `ip netns exec`: that one also makes a private mount table, in which namespaces that the pod runner
    adds would be hidden from the host and so from `lab down`.
    """
    return ["nsenter", f"--net={_NAMESPACES / lab.namespace}", "--", *argv]


def environment(lab: Lab) -> dict[str, str]:
    """What each process of the lab gets: this process's own, the lab's coordinates, the mark that `down` looks for."""
    return {
        **os.environ,
        "LAB_HOME": str(lab.home),
        "LAB_CACHE": str(lab.cache),
        "LAB_INDEX": str(lab.index),
        "LAB_SITE_FILE": str(lab.site_file),
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONUNBUFFERED": "1",
        "PATH": f"{lab.bin}:{os.environ.get('PATH', '/usr/sbin:/usr/bin:/sbin:/bin')}",
        MARK: mark(lab),
    }


def mark(lab: Lab) -> str:
    """Value of MARK for this lab; one of the same index in another PID namespace has another and is not ours to end."""
    return f"{lab.prefix}@{Path('/proc/self/ns/pid').stat().st_ino}"


def require_root() -> None:
    """Fail with a clear error when this process may not make network namespaces."""
    if os.geteuid() != 0:
        raise LabError(
            f"the lab needs root, and this is user id {os.geteuid()}",
            fix="run it by sudo, or in a virtual machine or a privileged container. A user namespace does not suffice: "
            "the uplink and its route are made in the host's network namespace, which it has no rights in",
        )


@contextlib.contextmanager
def machine_lock(lab: Lab) -> Iterator[None]:
    """Hold the right to change this lab index on this machine; raises `LabError` at once if another process has it."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # An abstract address is machine-wide, leaves no file, and ends with its process.
        holder.bind(f"\0inference-lab/{lab.prefix}")
    except OSError:
        raise LabError(
            f"another `lab up` or `lab down` of lab {lab.index} is at work on this machine",
            fix="wait for it to end, or set LAB_INDEX to another number for a second lab",
        ) from None
    try:
        yield
    finally:
        holder.close()


def owner(lab: Lab) -> Path | None:
    """Folder of the lab that has this index on this machine; None when there is no uplink."""
    links = _links(None)
    link = next((entry for entry in links if entry["ifname"] == uplink(lab)), None)
    # Without an alias it is what a killed `lab up` left, which the next one repairs.
    return Path(link["ifalias"]) if link and link.get("ifalias") else None


def require_own(lab: Lab) -> None:
    """Raise `LabError` when a lab of another folder runs with this index."""
    other = owner(lab)
    if other is not None and other != lab.home and other.exists():
        raise LabError(
            f"lab {lab.index} already runs on this machine, from {other}",
            fix=f"take it down (`LAB_HOME={other} LAB_INDEX={lab.index} python -m lab down`), "
            "or set LAB_INDEX to another number (0 to 7) to run a second one",
        )


def ensure(lab: Lab) -> None:
    """Make what is missing of the namespace, the bridge, the uplink, the routes and the namespace's sysctls."""
    plan = lab.network
    host_end, site_end = plan.uplink[1], plan.uplink[2]
    if lab.namespace not in _namespaces(lab):
        # A leftover namespace without a name still has the uplink and the processes; nothing can enter it.
        teardown(lab)
        _ip("netns", "add", lab.namespace)
    site = _links(lab)
    names = {link["ifname"] for link in site}
    if _LINK_INSIDE not in names:
        _ip("link", "add", uplink(lab), "type", "veth", "peer", "name", _LINK_INSIDE, "netns", lab.namespace)
    _ip("link", "set", uplink(lab), "alias", str(lab.home))
    if lab.bridge not in names:
        _ip("link", "add", lab.bridge, "type", "bridge", namespace=lab.namespace)
    _ip("addr", "replace", f"{host_end}/{plan.uplink.prefixlen}", "dev", uplink(lab))
    _ip("link", "set", uplink(lab), "up")
    for link, address in (
        (_LINK_INSIDE, f"{site_end}/{plan.uplink.prefixlen}"),
        (lab.bridge, f"{plan.bridge_address}/{plan.pods.prefixlen}"),
    ):
        _ip("addr", "replace", address, "dev", link, namespace=lab.namespace)
        _ip("link", "set", link, "up", namespace=lab.namespace)
    _ip("link", "set", "lo", "up", namespace=lab.namespace)
    # A packet made in here needs some route before kube-proxy's rules rewrite where it goes.
    for virtual in (plan.services, plan.load_balancers):
        _ip(
            "route",
            "replace",
            str(virtual),
            "dev",
            lab.bridge,
            "src",
            str(plan.bridge_address),
            namespace=lab.namespace,
        )
    _ip("route", "replace", str(plan.whole), "via", str(site_end), "dev", uplink(lab))
    for name, value in (
        ("ipv4/ip_forward", "1"),
        # Pods share one bridge but talk by way of the gateway; a redirect would make them bypass kube-proxy's rules.
        ("ipv4/conf/all/send_redirects", "0"),
        (f"ipv4/conf/{lab.bridge}/send_redirects", "0"),
        # Where br_netfilter is loaded, it would bridge a rewritten packet at once, and a pod could not reach itself
        # through its own Service. It is a setting of the namespace, and missing where the module is.
        ("bridge/bridge-nf-call-iptables", "0"),
    ):
        setting = Path("/proc/sys/net", name)
        command = ["sh", "-c", 'test ! -e "$0" || echo "$1" >"$0"', str(setting), value]
        subprocess.run(inside(lab, command), check=True)


def own_address(lab: Lab, address: IPv4Address | str) -> None:
    """Give the lab's namespace one more address: a machine's, where its API, host-network pods and NodePorts answer."""
    _ip("addr", "replace", f"{address}/32", "dev", lab.bridge, namespace=lab.namespace)


def namespace_processes(lab: Lab) -> set[int]:
    """Every process in the lab's namespaces, and those that carry the lab's mark where a namespace lost its name."""
    named = processes.in_networks(_NAMESPACES / namespace for namespace in _namespaces(lab))
    return named | processes.marked(MARK, mark(lab))


def teardown(lab: Lab) -> None:
    """End every process of the lab, then remove its namespaces, its uplink and its mounts. Needs no state folder."""
    for _ in range(_KILL_ROUNDS):
        pids = namespace_processes(lab) - {os.getpid()}
        if not pids:
            break
        processes.send(pids, signal.SIGKILL)
        processes.wait_gone(pids, timeout_s=2)
    else:
        raise LabError(
            f"processes of lab {lab.index} cannot be ended: {', '.join(map(str, sorted(pids)))}",
            fix="see what they wait for (`cat /proc/PID/wchan`), then `lab down` again",
        )
    _unmount_below(lab.home)
    for namespace in sorted(path.name for path in _NAMESPACES.glob(f"{lab.prefix}-*")):
        if subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False).returncode != 0:
            _stale_name(namespace)
    # The kernel deletes a namespace and the links in it some milliseconds after its last user is gone.
    deadline = time.monotonic() + 10
    while left := [link["ifname"] for link in _links(None) if link["ifname"].startswith(f"{lab.prefix}-")]:
        for link in left:
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)
        if time.monotonic() > deadline:
            raise LabError(
                f"links of lab {lab.index} are left: {', '.join(left)}", fix="`ip link del` them, see `dmesg`"
            )
        time.sleep(0.05)
    # iproute2 mounts its folder over itself at the first `ip netns add` and makes it again when it is missing.
    # A mount over /run hides that of others, which is none of ours.
    if str(_NAMESPACES) in _mounts() and _NAMESPACES.is_dir() and not any(_NAMESPACES.iterdir()):
        _unmount(_NAMESPACES)


def _unmount_below(folder: Path) -> None:
    for mount in sorted((m for m in _mounts() if Path(m).is_relative_to(folder)), key=len, reverse=True):
        _unmount(Path(mount))


def _unmount(mount: Path) -> None:
    """Unmount lazily, by the system call: umount(8) leaves a folder of its own in /run."""
    ctypes.CDLL(None).umount2(os.fsencode(mount), _DETACH)


def _stale_name(namespace: str) -> None:
    """Drop a name under /run/netns whose mount is gone, which `ip netns` can neither use nor delete."""
    path = _NAMESPACES / namespace
    if path.exists() and str(path) not in _mounts():
        path.unlink()


def _namespaces(lab: Lab) -> set[str]:
    """Namespaces of this lab that are alive under their name."""
    mounted = _mounts()
    return {path.name for path in _NAMESPACES.glob(f"{lab.prefix}-*") if str(path) in mounted}


def _mounts() -> list[str]:
    """Mount points that this process sees, in order; not by `is_mount`, which cannot see a folder bound to itself."""
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def _links(lab: Lab | None) -> list[dict[str, Any]]:
    """Links of the lab's namespace, or of the host."""
    chosen = ["-netns", lab.namespace] if lab else []
    listing = subprocess.run(["ip", *chosen, "-json", "link", "show"], capture_output=True, text=True, check=True)
    parsed: list[dict[str, Any]] = json.loads(listing.stdout or "[]")
    return parsed


def _ip(*arguments: str, namespace: str | None = None) -> None:
    chosen = ["-netns", namespace] if namespace else []
    done = subprocess.run(["ip", *chosen, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(
            f"`ip {' '.join([*chosen, *arguments])}` failed: {done.stderr.strip()}",
            fix="the lab needs the rights of root in the host's network namespace (CAP_NET_ADMIN, CAP_SYS_ADMIN) "
            "and a kernel with veth and bridge; `python -m lab doctor` shows which are missing",
        )
