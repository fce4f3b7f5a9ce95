"""A control plane of its own on loopback, a provider in this process, and programs that the real engine runs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.free_ports import free_ports
from lab.paths import CHECKOUT, Lab
from lab.plugins import values
from lab.plugins.kubernetes import VERSION
from lab.plugins.kubernetes.provider import KubernetesProvider
from tests.lab.engine_state import differences, resources
from tests.lab.provider_driver import Declared, Driver
from tests.lab.waiting import eventually

# Declares what a file next to it holds, by type tokens: importing the whole SDK takes longer than most of these tests.
PROGRAM = f"""
import json, pathlib
import pulumi

SIGNATURE, SECRET = "{values.SIGNATURE}", "{values.SECRET}"

def given(value):
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET:
            return pulumi.Output.secret(given(value["value"]))
        return {{key: given(inner) for key, inner in value.items()}}
    return [given(inner) for inner in value] if isinstance(value, list) else value

before = []
for each in json.loads((pathlib.Path(__file__).parent / "program.json").read_text()):
    options = pulumi.ResourceOptions(version="{VERSION}", depends_on=before, ignore_changes=each["ignore_changes"])
    before = [pulumi.CustomResource(each["type"], each["name"], given(each["inputs"]), options)]
"""

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "spec": {"podCIDR": "10.99.0.0/24"},
    "status": {"capacity": {"cpu": "32", "memory": "64Gi", "pods": "110"}},
}

_LISTENERS = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "controller")


@dataclass(frozen=True)
class Plane:
    """A running control plane; `folder` holds its files."""

    bin: Path
    folder: Path

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def etcd(self) -> str:
        """URL of its gateway for JSON."""
        words = Path(f"/proc/{self.pid('etcd')}/cmdline").read_text().split("\0")
        return next(word.partition("=")[2] for word in words if word.startswith("--advertise-client-urls="))

    def kwokctl(self, *arguments: str) -> None:
        environment = {**os.environ, "KWOK_WORKDIR": str(self.folder / "kwok"), "PATH": self.path}
        subprocess.run(
            [self.bin / "kwokctl", "--name", "plugin", *arguments], env=environment, check=True, capture_output=True
        )

    @property
    def path(self) -> str:
        """The lab's programs, and the Python that runs the tests: the language host takes the first one."""
        return os.pathsep.join([str(Path(sys.prefix) / "bin"), str(self.bin), os.environ["PATH"]])

    def kubectl(self, *arguments: str, given: object = None) -> str:
        # With a cache of its own: the home's may hold the kinds of an earlier server at the same address.
        own = ("--kubeconfig", self.kubeconfig, "--cache-dir", self.kubeconfig.parent / "kubectl-cache")
        done = subprocess.run(
            [self.bin / "kubectl", *own, *arguments],
            input=json.dumps(given) if given is not None else None,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """The object, with the owners of its fields."""
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--show-managed-fields")
        live: dict[str, Any] = json.loads(text)
        return live

    def names(self, kind: str, namespace: str = "default") -> list[str]:
        return self.kubectl("get", kind, "-n", namespace, "-o", "name").split()

    def pid(self, component: str) -> int:
        return int((self.folder / "kwok" / "clusters" / "plugin" / "pids" / f"{component}.pid").read_text())

    def kill(self, component: str) -> None:
        """By SIGKILL, and wait for its end: kwokctl starts none whose process is still there."""
        pid = self.pid(component)
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{pid}").exists())


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """etcd, API server, controllers, scheduler and a node whose Pods become ready at once."""
    tools = Lab.from_environment().bin
    for name in ("kwokctl", "kube-apiserver", "etcd", "pulumi"):
        if not (tools / name).exists():
            pytest.fail(f"{name} is not in {tools}: make tools builds it")
    here = Plane(tools, tmp_path_factory.mktemp("plane"))
    flags = [
        f"--{flag}-binary={tools / program}"
        for flag, program in {
            "etcd": "etcd",
            "kube-apiserver": "kube-apiserver",
            "kube-controller-manager": "kube-controller-manager",
            "kube-scheduler": "kube-scheduler",
            "kwok-controller": "kwok",
        }.items()
    ]
    # kwokctl looks for free ports itself, but two of them started at once find the same ones.
    flags += [f"--{part}-port={port}" for part, port in zip(_LISTENERS, free_ports(len(_LISTENERS)), strict=True)]
    # Without a default route, which a worker's network namespace lacks, the server finds no address to advertise.
    flags.append("--extra-args=kube-apiserver=advertise-address=192.0.2.1")
    # One of each: a lost election would end it for good.
    flags += [f"--extra-args={part}=leader-elect=false" for part in ("kube-controller-manager", "kube-scheduler")]
    with (Path(tempfile.gettempdir()) / "kwokctl-ports.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        here.kwokctl(
            "create", "cluster", "--runtime", "binary", *flags, f"--kubeconfig={here.kubeconfig}", "--wait", "120s"
        )
    here.kubectl("apply", "-f", "-", given=NODE)
    yield here
    here.kwokctl("delete", "cluster")


@dataclass
class Site:
    """One project and stack."""

    plane: Plane
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def declare(self, *program: Declared) -> None:
        """The same resources as a driver takes; each waits for the one before it."""
        (self.folder / "__main__.py").write_text(PROGRAM)
        resources = [
            {"type": entry.type, "name": entry.name, "inputs": entry.inputs, "ignore_changes": entry.ignore_changes}
            for entry in program
        ]
        (self.folder / "program.json").write_text(json.dumps(resources))

    def write(self, program: str) -> None:
        """A program with the provider's whole SDK."""
        (self.folder / "__main__.py").write_text("import pulumi\nimport pulumi_kubernetes as k8s\n" + program)

    def pulumi(self, *arguments: str, check: bool = True) -> str:
        """Run the engine and return all that it prints."""
        done = subprocess.run(
            [self.plane.bin / "pulumi", *arguments, "--non-interactive"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stdout
        else:
            assert done.returncode != 0, done.stdout
        return done.stdout

    def up(self, *arguments: str, check: bool = True) -> str:
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, check=check)

    def begin_up(self, until: str) -> subprocess.Popen[str]:
        """An `up` in the background, its output in stdout; returns when the ConfigMap `until` is there."""
        engine = subprocess.Popen(
            [self.plane.bin / "pulumi", "up", "--yes", "--skip-preview", "--non-interactive"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        eventually(lambda: f"configmap/{until}" in self.plane.names("configmap"))
        return engine

    def unchanged(self) -> None:
        """Neither a preview nor an update finds anything to do."""
        self.pulumi("preview", "--expect-no-changes")

    def differences(self) -> dict[str, dict[str, str]]:
        """What a preview says of each resource that changes: path -> kind."""
        return differences(self.pulumi("preview", "--json"))

    def state(self) -> dict[str, dict[str, Any]]:
        """The stack's resources by name, secrets marked."""
        return resources(self.pulumi("stack", "export", "--show-secrets"))


@pytest.fixture
def site(plane: Plane, tmp_path: Path) -> Iterator[Site]:
    """An empty project whose engine finds the stand-in on PATH; what it made is destroyed afterwards."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: plugin\nruntime: python\n")
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(CHECKOUT / "lab" / "plugins" / "bin"), plane.path]),
        "KUBECONFIG": str(plane.kubeconfig),
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        "PULUMI_HOME": str(tmp_path / "home"),
        "LAB_ENDPOINTS_SETTLE_S": "1",
    }
    here = Site(plane, folder, environment)
    here.pulumi("stack", "init", "dev")
    yield here
    here.pulumi("destroy", "--yes", "--skip-preview")


@pytest.fixture
def driver(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """A provider in this process; what it made is deleted afterwards."""
    for name, value in {"KUBECONFIG": str(plane.kubeconfig), "PATH": plane.path, "LAB_ENDPOINTS_SETTLE_S": "1"}.items():
        monkeypatch.setenv(name, value)
    made = Driver("kubernetes", KubernetesProvider)
    yield made
    made.destroy()
