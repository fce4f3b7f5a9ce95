"""The control plane: etcd, API server, controller manager, scheduler and KWOK as processes in the lab's namespace.

An emulated machine creates it when it is bootstrapped, and switches it on and off with itself. kwokctl writes down each
component's command; after that the supervisor starts components from that record, so that one that was killed comes
back in the same way as at the first start.
"""

from __future__ import annotations

import base64
import json
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.cluster import network, processes
from lab.cluster.component import Component
from lab.errors import LabError
from lab.paths import Lab

API_PORT = 6443
PKI_FILES = ("ca.crt", "ca.key", "admin.crt", "admin.key")
_CLUSTER = "lab"
STOP_ORDER = ("kwok-controller", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
_STAGES = Path(__file__).with_name("node_stages.yaml")

_PEER_URL = "http://127.0.0.1:2380"
_MEMBER = "node0"
# Revisions that a recovered cluster leaves out, so that none of those given out after the snapshot comes again.
_SKIPPED_REVISIONS = 1_000_000_000

# Name in kwokctl's options -> tool. Named in full, so kwokctl has nothing to download.
_BINARIES = {
    "etcdBinary": "etcd",
    "kubeApiserverBinary": "kube-apiserver",
    "kubeControllerManagerBinary": "kube-controller-manager",
    "kubeSchedulerBinary": "kube-scheduler",
    "kwokControllerBinary": "kwok",
    "kubectlBinary": "kubectl",
}


def work_folder(lab: Lab) -> Path:
    """kwokctl's folder: certificates, etcd's data, logs, pid files."""
    return lab.home / "controlplane"


def cluster_folder(lab: Lab) -> Path:
    return work_folder(lab) / "clusters" / _CLUSTER


def credentials_folder(lab: Lab) -> Path:
    """Kubeconfigs of the lab's own processes; they end with the cluster that issued them."""
    return lab.home / "credentials"


def snapshot_file(lab: Lab) -> Path:
    """etcd's data to begin the next control plane with, where a bootstrap asked for it."""
    return work_folder(lab) / "recover.db"


def switch(lab: Lab) -> Path:
    """The control plane runs while this file is there."""
    return work_folder(lab) / "control-plane-machine"


def settings(lab: Lab) -> list[dict[str, Any]]:
    """kwokctl's configuration: the tools, the addresses, and stages for nodes only (pods belong to the pod runner)."""
    plan = lab.network
    api_address = str(plan.bridge_address)
    services = {"key": "service-cluster-ip-range", "value": str(plan.services)}
    loopback_only = [
        {"key": f"{kind}-urls", "value": f"http://127.0.0.1:{port}", "override": True}
        for kind, port in (
            ("listen-client", 2379),
            ("advertise-client", 2379),
            ("listen-peer", 2380),
            ("initial-advertise-peer", 2380),
        )
    ]
    patches = {
        "etcd": [*loopback_only, {"key": "initial-cluster", "value": f"{_MEMBER}={_PEER_URL}", "override": True}],
        "kube-apiserver": [
            services,
            {"key": "advertise-address", "value": api_address},
            # As Talos has it (v1.13.9 control_plane_static_pod.go:349); kwokctl sets the authorizers Node and RBAC.
            {"key": "enable-admission-plugins", "value": "NodeRestriction"},
            *_by_front_proxy(lab),
        ],
        # One of each, so an election would only delay the return of one that was killed.
        "kube-controller-manager": [services, {"key": "leader-elect", "value": "false"}],
        "kube-scheduler": [{"key": "leader-elect", "value": "false"}],
    }
    options = {
        "runtime": "binary",
        "kubeApiserverPort": API_PORT,
        "etcdPort": 2379,
        "etcdPeerPort": 2380,
        "kubeControllerManagerPort": 10257,
        "kubeSchedulerPort": 10259,
        "kwokControllerPort": 10247,
        **{option: str(lab.bin / tool) for option, tool in _BINARIES.items()},
    }
    head = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": options,
        "componentsPatches": [{"name": name, "extraArgs": arguments} for name, arguments in patches.items()],
    }
    return [head, *yaml.safe_load_all(_STAGES.read_text())]


def _by_front_proxy(lab: Lab) -> list[dict[str, Any]]:
    """How an API server behind this one knows that a request came through it, and of whom it is.

    kwokctl gives the API server its administrator's certificate for that; Talos has an authority of its own for it.
    """
    values = {
        "client-ca-file": str(cluster_folder(lab) / "pki" / "ca.crt"),
        "allowed-names": "admin",
        "username-headers": "X-Remote-User",
        "group-headers": "X-Remote-Group",
        "extra-headers-prefix": "X-Remote-Extra-",
    }
    return [{"key": f"requestheader-{key}", "value": value} for key, value in values.items()]


def require_tools(lab: Lab) -> None:
    """Raise `LabError` when a program of the control plane was not built, or a link to any program leads nowhere."""
    wanted = {*_BINARIES.values(), "etcdutl", "kwokctl", "kube-proxy", "talos-checker"}
    linked = {path.name for path in lab.bin.iterdir()} if lab.bin.is_dir() else set()
    missing = sorted(tool for tool in wanted | linked if not (lab.bin / tool).exists())
    if missing:
        raise LabError(
            f"tools are missing in {lab.bin}: {', '.join(missing)}", fix="`python -m lab install` builds them"
        )


def is_created(lab: Lab) -> bool:
    """Whether there is a control plane, running or switched off."""
    return (work_folder(lab) / "created").exists() and bool(components(lab))


def api_names(lab: Lab) -> tuple[str, ...]:
    """What the API server's certificate must be valid for, in addition to the names in the machine's config."""
    plan = lab.network
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    return (*names, "localhost", "127.0.0.1", str(plan.bridge_address), str(plan.services[1]), str(plan.uplink[2]))


def create(lab: Lab, pki: Mapping[str, str]) -> None:
    """Create and start the control plane unless that was done, and switch it on.

    `pki` is the PEM text of each of PKI_FILES: the authority, and an administrator that is the API server too.
    """
    if not is_created(lab):
        (work_folder(lab) / "created").unlink(missing_ok=True)
        _create(lab, pki)
        (work_folder(lab) / "created").touch()
        snapshot_file(lab).unlink(missing_ok=True)
    switch(lab).touch()
    ensure_kubeconfig(lab)


def switch_off(lab: Lab) -> None:
    """Have the supervisor stop it; its data stays."""
    switch(lab).unlink(missing_ok=True)


def drop(lab: Lab) -> None:
    """Forget it with all its data, as when the last machine of its etcd is wiped."""
    switch_off(lab)
    (work_folder(lab) / "created").unlink(missing_ok=True)
    lab.kubeconfig.unlink(missing_ok=True)
    _end_processes(lab)
    _remove(lab)


def stamp(lab: Lab) -> int | None:
    """Changes when another control plane is created; None while there is none."""
    try:
        return (work_folder(lab) / "created").stat().st_mtime_ns
    except FileNotFoundError:
        return None


def components(lab: Lab) -> list[Component]:
    """What the control plane is made of, in the order in which it starts; empty before it was created."""
    try:
        documents = list(yaml.safe_load_all((cluster_folder(lab) / "kwok.yaml").read_text()))
    except FileNotFoundError:
        return []
    recorded: dict[str, Any] = next((d for d in documents if d and d.get("kind") == "KwokctlConfiguration"), {})
    return [
        Component(
            name=entry["name"],
            argv=(entry["binary"], *entry.get("args", ())),
            environment=tuple((e["name"], e.get("value", "")) for e in entry.get("envs", ())),
            folder=Path(entry["workDir"]),
            # kwokctl's own places, so its commands go on to work.
            pid_file=Path(entry["workDir"], "pids", f"{Path(entry['binary']).name}.pid"),
            log_file=Path(entry["workDir"], "logs", f"{Path(entry['binary']).name}.log"),
            needs=switch(lab),
        )
        for entry in recorded.get("components", ())
    ]


def is_ready(lab: Lab) -> bool:
    """Whether the API server answers that it is ready."""
    authority = cluster_folder(lab) / "pki" / "ca.crt"
    url = f"https://{lab.network.bridge_address}:{API_PORT}/readyz"
    try:
        trust = ssl.create_default_context(cafile=str(authority))
        with urllib.request.urlopen(url, timeout=10, context=trust) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def wait_ready(lab: Lab, timeout_s: float) -> None:
    """Wait for the API server; raises `LabError` that names the log when it does not come up."""
    deadline = time.monotonic() + timeout_s
    while not is_ready(lab):
        if time.monotonic() > deadline:
            raise LabError(
                f"the API server is not ready after {timeout_s:.0f} s",
                fix=f"read {cluster_folder(lab) / 'logs'}/kube-apiserver.log and etcd.log there",
            )
        time.sleep(0.1)


def _create(lab: Lab, pki: Mapping[str, str]) -> None:
    # What a killed creation left has no record to go on from; nothing of value is in it yet.
    _end_processes(lab)
    _remove(lab)
    folder = cluster_folder(lab) / "pki"
    folder.mkdir(parents=True, mode=0o700)
    for name in PKI_FILES:
        # kwokctl makes an authority of its own only where there is none.
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(pki[name])
    if snapshot_file(lab).exists():
        _restore(lab)
    configuration = work_folder(lab) / "kwokctl.yaml"
    configuration.write_text(yaml.safe_dump_all(settings(lab), sort_keys=False))
    done = subprocess.run(
        network.inside(
            lab,
            [
                str(lab.bin / "kwokctl"),
                *("--config", str(configuration), "--name", _CLUSTER, "create", "cluster"),
                *("--kubeconfig", "", "--timeout", "120s"),
            ],
        ),
        env={**network.environment(lab), "KWOK_WORKDIR": str(work_folder(lab))},
        # kwokctl's children inherit these; a pipe would never end.
        stdout=(work_folder(lab) / "kwokctl.log").open("w"),
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(
            f"kwokctl could not create the control plane (exit status {done.returncode})",
            fix=f"read {work_folder(lab) / 'kwokctl.log'}; `python -m lab down` then `up` starts again from the start",
        )


def _restore(lab: Lab) -> None:
    """etcd's folder out of the snapshot; the machine that was given it has looked at its digest."""
    done = subprocess.run(
        [
            *(str(lab.bin / "etcdutl"), "snapshot", "restore", str(snapshot_file(lab)), "--skip-hash-check"),
            *("--data-dir", str(cluster_folder(lab) / "etcd"), "--name", _MEMBER),
            *("--initial-cluster", f"{_MEMBER}={_PEER_URL}", "--initial-advertise-peer-urls", _PEER_URL),
            *("--bump-revision", str(_SKIPPED_REVISIONS), "--mark-compacted"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last_line = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise LabError(
            f"etcd's snapshot cannot be restored: {''.join(last_line)}", fix="bootstrap with another one, or without"
        )


def _end_processes(lab: Lab) -> None:
    """Whatever of a control plane runs in the lab's namespace, recorded or not."""
    running = {
        pid
        for pid in network.namespace_processes(lab)
        if (command := processes.command_line(pid))
        # kwokctl has the others' programs in its cluster's folder.
        and (command[0] == str(lab.bin / "kwokctl") or Path(command[0]).is_relative_to(cluster_folder(lab)))
    }
    processes.send(running, signal.SIGKILL)
    processes.wait_gone(running, timeout_s=5)


def _remove(lab: Lab) -> None:
    """Its data, and credentials that know an authority that is no more."""
    for stale in (cluster_folder(lab), credentials_folder(lab)):
        shutil.rmtree(stale, ignore_errors=True)


def ensure_kubeconfig(lab: Lab) -> None:
    """Write the administrator's kubeconfig for people unless it is there."""
    if lab.kubeconfig.exists():
        return
    pki = cluster_folder(lab) / "pki"
    write_kubeconfig(
        lab,
        lab.kubeconfig,
        {
            "client-certificate-data": base64.b64encode((pki / "admin.crt").read_bytes()).decode(),
            "client-key-data": base64.b64encode((pki / "admin.key").read_bytes()).decode(),
        },
    )


def write_kubeconfig(lab: Lab, path: Path, user: dict[str, str]) -> None:
    """Write a kubeconfig for the API server with these credentials; readable by its owner alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place: the supervisor starts a process as soon as it sees the file that it needs.
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(kubeconfig_of(lab, user), indent=2))
    draft.replace(path)


def kubeconfig_of(lab: Lab, user: dict[str, str]) -> dict[str, Any]:
    """A kubeconfig for the API server with these credentials."""
    authority = (cluster_folder(lab) / "pki" / "ca.crt").read_bytes()
    name = f"lab-{lab.index}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": f"https://{lab.network.bridge_address}:{API_PORT}",
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
