"""The control plane: etcd, API server, controller manager, scheduler and KWOK as processes in the lab's namespace.

kwokctl makes the certificates and writes down each component's command; after that the lab starts components itself
from that record, so that one that was killed comes back in the same way as at the first start.
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
from pathlib import Path
from typing import Any

import yaml

from lab.cluster import network, processes
from lab.cluster.component import Component
from lab.errors import LabError
from lab.paths import Lab

API_PORT = 6443
_CLUSTER = "lab"
STOP_ORDER = ("kwok-controller", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
_STAGES = Path(__file__).with_name("node_stages.yaml")

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
        "etcd": [*loopback_only, {"key": "initial-cluster", "value": "node0=http://127.0.0.1:2380", "override": True}],
        "kube-apiserver": [services, {"key": "advertise-address", "value": api_address}],
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
        "kubeApiserverCertSANs": [api_address, str(plan.services[1]), str(plan.uplink[2])],
        **{option: str(lab.bin / tool) for option, tool in _BINARIES.items()},
    }
    head = {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": options,
        "componentsPatches": [{"name": name, "extraArgs": arguments} for name, arguments in patches.items()],
    }
    return [head, *yaml.safe_load_all(_STAGES.read_text())]


def require_tools(lab: Lab) -> None:
    """Raise `LabError` when a program of the control plane was not built."""
    missing = [tool for tool in (*_BINARIES.values(), "kwokctl", "kube-proxy") if not (lab.bin / tool).exists()]
    if missing:
        raise LabError(
            f"tools are missing in {lab.bin}: {', '.join(missing)}", fix="`python -m lab install` builds them"
        )


def create(lab: Lab) -> bool:
    """Create and start the control plane unless that was done; whether it was created now."""
    finished = work_folder(lab) / "created"
    was_created = finished.exists() and bool(components(lab))
    if not was_created:
        finished.unlink(missing_ok=True)
        _create(lab)
        finished.touch()
    _write_kubeconfig(lab)
    return not was_created


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
        )
        for entry in recorded.get("components", ())
    ]


def is_ready(lab: Lab) -> bool:
    """Whether the API server answers that it is ready."""
    authority = cluster_folder(lab) / "pki" / "ca.crt"
    url = f"https://{lab.network.bridge_address}:{API_PORT}/readyz"
    try:
        trust = ssl.create_default_context(cafile=str(authority))
        with urllib.request.urlopen(url, timeout=2, context=trust) as answer:
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


def _create(lab: Lab) -> None:
    # What a killed creation left has no record to go on from; nothing of value is in it yet, and its credentials,
    # like its processes, know an authority that is no more.
    half_done = network.namespace_processes(lab)
    processes.send(half_done, signal.SIGKILL)
    processes.wait_gone(half_done, timeout_s=5)
    for stale in (cluster_folder(lab), credentials_folder(lab)):
        shutil.rmtree(stale, ignore_errors=True)
    work_folder(lab).mkdir(parents=True, exist_ok=True)
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
            fix=f"read {work_folder(lab) / 'kwokctl.log'}; `python -m lab down` then `up` starts afresh",
        )


def _write_kubeconfig(lab: Lab) -> None:
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
    authority = (cluster_folder(lab) / "pki" / "ca.crt").read_bytes()
    name = f"lab-{lab.index}"
    content = {
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
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2))
