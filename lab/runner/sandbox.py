"""The bubblewrap command line of one container; no side effects.

The container sees a small read-only part of the host (/usr and what the program needs), its volumes, and fresh /tmp,
/dev, /proc. Its program is PID 1 of its own PID namespace, so signals and exit codes are those of a real container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from lab.runner.images import HostFiles

# What a container runtime leaves to root in a container by default.
DEFAULT_CAPABILITIES = frozenset(
    f"CAP_{name}"
    for name in (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Host files that a dynamically linked program reads; absent ones are skipped.
_HOST_ETC = ("/etc/ssl", "/etc/ld.so.cache", "/etc/alternatives", "/etc/services", "/etc/protocols", "/etc/mime.types")
# A container's users and groups are these numbers further up on the host, where no user has them: a local user with the
# number that a pod runs as could read its tokens in /proc/PID/root, and signal it.
_HOST_IDS = 2_000_000_000
# Folders that are there before the first mount.
_STANDING_FOLDERS = ("/", "/usr", "/usr/local", "/bin", "/dev", "/proc", "/tmp", "/run", "/var", "/var/run", "/var/tmp")  # noqa: S108
_ROOT_LINKS = (("usr/lib", "/lib"), ("usr/lib64", "/lib64"), ("usr/sbin", "/sbin"))


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One host path in the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class RunAs:
    """Who the program runs as."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    capabilities: frozenset[str] = DEFAULT_CAPABILITIES


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """Everything bubblewrap needs for one container."""

    hostname: str
    command: Sequence[str]
    files: HostFiles
    mounts: Sequence[Mount] = ()
    identity: RunAs = field(default_factory=RunAs)
    working_dir: str = "/"
    read_only_root: bool = False


def identity(security: Mapping[str, Any], image_user: int) -> RunAs:
    """Who the container runs as: its security context (container over pod), else the image's own user."""
    uid = int(security.get("runAsUser", image_user))
    group = security.get("runAsGroup")
    gid = int(group) if group is not None else (image_user if "runAsUser" not in security else 0)
    groups = {int(number) for number in security.get("supplementalGroups") or []}
    if security.get("fsGroup") is not None:
        groups.add(int(security["fsGroup"]))
    return RunAs(uid=uid, gid=gid, groups=tuple(sorted(groups)), capabilities=_capabilities(security))


def _capabilities(security: Mapping[str, Any]) -> frozenset[str]:
    asked = security.get("capabilities") or {}
    dropped = {_capability(name) for name in asked.get("drop") or []}
    kept = frozenset() if "CAP_ALL" in dropped else DEFAULT_CAPABILITIES - dropped
    return kept | {_capability(name) for name in asked.get("add") or []}


def _capability(name: str) -> str:
    return name if name.startswith("CAP_") else f"CAP_{name}"


def bwrap_argv(sandbox: Sandbox, *, bwrap: str, info_fd: int, status_fd: int, host_paths: Iterable[str]) -> list[str]:
    """The command line; `info_fd` receives the program's PID as JSON, `status_fd` that and its exit code.

    `host_paths` are the /etc files there are. The program outlives the runner, whose successor takes it over.
    """
    argv = [bwrap, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--as-pid-1"]
    argv += ["--hostname", sandbox.hostname, "--info-fd", str(info_fd), "--json-status-fd", str(status_fd)]
    argv += _capability_flags(sandbox.identity)
    argv += ["--ro-bind", "/usr", "/usr", "--tmpfs", "/usr/local"]
    for target, link in _ROOT_LINKS:
        argv += ["--symlink", target, link]
    own_bin = any(target.startswith("/bin/") for _, target in sandbox.files.binds)
    # A program that its image keeps in /bin cannot be bound through the link into the read-only /usr.
    argv += ["--dir", "/bin", "--symlink", "/usr/bin/sh", "/bin/sh"] if own_bin else ["--symlink", "usr/bin", "/bin"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108
    argv += ["--perms", "1777", "--tmpfs", "/tmp", "--dir", "/run"]  # noqa: S108
    argv += ["--dir", "/var", "--perms", "1777", "--dir", "/var/tmp", "--symlink", "../run", "/var/run"]  # noqa: S108
    existing = set(host_paths)
    mounts = [Mount(source=path, target=path, read_only=True) for path in _HOST_ETC if path in existing]
    mounts += [Mount(source=str(source), target=target, read_only=True) for source, target in sandbox.files.binds]
    # A mount below another mount must come after it.
    mounts += sorted(sandbox.mounts, key=lambda item: item.target.count("/"))
    made = set(_STANDING_FOLDERS)
    for mount in mounts:
        argv += _parents(mount.target, made)
        argv += ["--ro-bind" if mount.read_only else "--bind", mount.source, mount.target]
    for target, link in sandbox.files.links:
        argv += [*_parents(link, made), "--symlink", target, link]
    if sandbox.read_only_root:
        argv += ["--remount-ro", "/"]
    argv += ["--chdir", sandbox.working_dir, "--"]
    return argv + switch_user(sandbox.identity) + list(sandbox.command)


def _parents(target: str, made: set[str]) -> list[str]:
    """Folders above a mount; left to itself bubblewrap makes them for root alone."""
    flags: list[str] = []
    for folder in reversed(PurePosixPath(target).parents):
        if str(folder) not in made:
            made.add(str(folder))
            flags += ["--dir", str(folder)]
    return flags


def _capability_flags(who: RunAs) -> list[str]:
    wanted = who.capabilities
    if who.uid or who.gid or who.groups:
        # Needed to become that user; a switch away from root drops them again.
        wanted = wanted | {"CAP_SETUID", "CAP_SETGID"}
    flags = ["--cap-drop", "ALL"]
    for name in sorted(wanted):
        flags += ["--cap-add", name]
    return flags


def switch_user(who: RunAs) -> list[str]:
    """Prefix of a command that shall run as this user; empty for plain root."""
    if not (who.uid or who.gid or who.groups):
        return []
    groups = ["--groups", ",".join(str(on_host(group)) for group in who.groups)] if who.groups else ["--clear-groups"]
    return ["/usr/bin/setpriv", "--reuid", str(on_host(who.uid)), "--regid", str(on_host(who.gid)), *groups, "--"]


def on_host(number: int) -> int:
    """The host's number of a container's user or group; root stays root, with the capabilities of a container."""
    return number + _HOST_IDS if number else 0


def etc_files(hostname: str, address: str, aliases: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Texts of the pod's own /etc files except resolv.conf."""
    nonroot, nobody = on_host(65532), on_host(65534)
    hosts = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    if address:
        hosts.append(f"{address}\t{hostname}")
    hosts += [f"{alias['ip']}\t{' '.join(alias.get('hostnames') or [])}" for alias in aliases]
    return {
        "hosts": "\n".join(hosts) + "\n",
        "hostname": hostname + "\n",
        "passwd": "root:x:0:0:root:/root:/bin/sh\n"
        f"nonroot:x:{nonroot}:{nonroot}:nonroot:/home/nonroot:/usr/sbin/nologin\n"
        f"nobody:x:{nobody}:{nobody}:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\nnonroot:x:{nonroot}:\nnogroup:x:{nobody}:\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }


def resolv_conf(spec: Mapping[str, Any], namespace: str, cluster_dns: str, domain: str = "cluster.local") -> str:
    """The pod's /etc/resolv.conf by its dnsPolicy and dnsConfig.

    Policy Default gives no name server: the lab's nodes have none.
    """
    policy = spec.get("dnsPolicy", "ClusterFirst")
    cluster = policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork"))
    config = spec.get("dnsConfig") or {}
    servers = ([cluster_dns] if cluster else []) + list(config.get("nameservers") or [])
    searches = [f"{namespace}.svc.{domain}", f"svc.{domain}", domain] if cluster else []
    searches += [name for name in config.get("searches") or [] if name not in searches]
    options = {"ndots": "5"} if cluster else {}
    options.update({item["name"]: str(item.get("value", "")) for item in config.get("options") or []})
    lines = [f"nameserver {server}" for server in servers]
    if searches:
        lines.append("search " + " ".join(searches))
    if options:
        lines.append("options " + " ".join(f"{name}:{value}" if value else name for name, value in options.items()))
    return "\n".join(lines) + "\n"
