"""A rack of emulated machines, a stand-in for kubectl that knows their nodes, and the real engine on a small program.

The program declares a site's cluster and its provider, and nothing on it. Kubernetes itself is left out: its nodes are
those that the machines register, so that a whole life of a cluster takes a minute.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

from lab import session
from lab.machines.cluster_hooks import RecordedCluster
from lab.machines.node_object import Node, NodeFacts
from lab.machines.spec import Hardware
from lab.paths import CHECKOUT, Lab
from tests.lab.cluster_program.rack_site import RackSite, new_rack_site
from tests.program_folders import FOLDERS

PROJECT = "inference-platform"
PROGRAM = """
import pulumi
from stacks.program import debug_messages, interrupts
from stacks.program.cluster_access import cluster_access
from stacks.program.engine_config import plan_stack

interrupts.end_without_a_traceback()
debug_messages.send_none()
cluster = cluster_access(plan_stack(pulumi.get_stack()))
pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("talosconfig", cluster.talosconfig)
"""
KUBECTL = """#!/usr/bin/env python3
import fcntl, json, pathlib, sys
nodes = pathlib.Path(__file__).resolve().parent / "nodes"
lock = (nodes.parent / "lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
words = [each for each in sys.argv[2:] if not each.startswith(("--request-timeout", "--server"))]
if words[:2] == ["get", "nodes"]:
    found = [json.loads(each.read_text()) for each in sorted(nodes.iterdir())]
    print(json.dumps({"items": [each for each in found if each["apiServer"]]}))
    sys.exit()
if words[1] == "--raw":
    (server,) = [each.partition("=")[2] for each in sys.argv if each.startswith("--server=")]
    for each in nodes.iterdir():
        node = json.loads(each.read_text())
        if server == "https://%s:6443" % node["status"]["addresses"][0]["address"]:
            print(json.dumps({"gitVersion": node["apiServer"]}))
    sys.exit()
name = words[2] if words[1] == "node" else words[1]
file = nodes / name
node = json.loads(file.read_text()) if file.exists() else None
with (nodes.parent / "calls").open("a") as log:
    log.write(f"{words[0]} {name}\\n")
if words[0] == "get" and node:
    print(json.dumps(node))
elif words[0] == "annotate" and node:
    key = words[-1].partition("=")[0]
    annotations = node["metadata"].setdefault("annotations", {})
    annotations.pop(key.rstrip("-"), None)
    if not key.endswith("-"):
        annotations[key] = "x"
elif words[0] == "patch" and node:
    change = json.loads(words[-1].partition("=")[2])
    for part in ("labels", "annotations"):
        texts = node["metadata"].get(part, {}) | change["metadata"].get(part, {})
        node["metadata"][part] = {key: text for key, text in texts.items() if text is not None}
    node["spec"] |= change.get("spec", {})
elif words[0] in ("cordon", "drain", "uncordon") and node:
    node["spec"]["unschedulable"] = words[0] != "uncordon"
elif words[0] == "delete":
    file.unlink(missing_ok=True)
    node = None
if node and words[0] != "get":
    file.write_text(json.dumps(node))
"""


class _Lock:
    """Keeps this process and the stand-in for kubectl from changing a node at the same time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._held: TextIO | None = None
        self._threads = threading.Lock()

    def __enter__(self) -> None:
        self._threads.acquire()
        self._held = self._file.open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        assert self._held is not None
        self._held.close()
        self._threads.release()


class KubectlCluster(RecordedCluster):
    """Nodes as files, which the stand-in for kubectl reads."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder / "nodes"
        self.folder.mkdir(parents=True)
        self._lock = _Lock(folder / "lock")
        self.versions: list[tuple[str, str, str]] = []
        """Node, version of its kubelet, version of its API server: each time that a node registered."""

    def described(self, present: Node, node: NodeFacts) -> Node:
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": address} for address in node.addresses],
            "nodeInfo": {"kubeletVersion": node.kubelet_version},
        }
        self.versions.append((node.name, node.kubelet_version, node.api_server_version))
        return present | {"status": status, "apiServer": node.api_server_version}

    def node_not_ready(self, name: str, why: str) -> None:
        super().node_not_ready(name, why)
        with self._lock:
            if node := self.read(name):
                node["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": why}]
                self.write(node)

    def read(self, name: str) -> Node | None:
        file = self.folder / name
        return json.loads(file.read_text()) if file.exists() else None

    def write(self, node: Node) -> None:
        # In one step and without a trace in the folder: the stand-in lists it.
        name = node["metadata"]["name"]
        draft = self.folder.parent / f"{name}.draft"
        draft.write_text(json.dumps(node))
        draft.replace(self.folder / name)


@dataclass(kw_only=True)
class Rig(RackSite):
    """The rack, the project and its engine; write_site takes changes of the site over."""

    cluster: KubectlCluster
    lab: Lab
    project: Path

    def write_site(self) -> None:
        """Write the stack file."""
        file = self.project / "Pulumi.lab.yaml"
        document = yaml.safe_load(file.read_text()) if file.exists() else {}
        document["config"] = {**document.get("config", {}), f"{PROJECT}:site": self.site}
        file.write_text(yaml.safe_dump(document))

    def versions(self, **changes: Any) -> None:
        """Change versions of the program."""
        file = self.project / "stacks" / "facts" / "versions.yaml"
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changes))

    def pulumi(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return session.run_pulumi(self.lab, *arguments, project=self.project, check=check)

    def up(self, *arguments: str, check: bool = True) -> str:
        """`pulumi up` without preview; all of its output."""
        done = self.pulumi("up", "--yes", "--skip-preview", *arguments, check=check)
        assert check or done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def preview(self, *, check: bool = True) -> str:
        """All output of `pulumi preview`."""
        done = self.pulumi("preview", "--diff", check=check)
        assert check or done.returncode != 0, done.stdout
        return done.stdout + done.stderr

    def make_control_planes(self, count: int) -> None:
        """The site's first workers are further control planes `cp-2` and so on."""
        workers = sorted(name for name, node in self.nodes.items() if node["role"] == "worker")
        for number, name in enumerate(workers[: count - 1], start=2):
            self.nodes[f"cp-{number}"] = {**self.nodes.pop(name), "role": "controlplane"}
        self.write_site()

    def restore(self) -> None:
        """No faults, power for all; what a wrong clock has signed goes with a reboot."""
        for machine in self.rack.machines.values():
            if machine.faults.clock_skew_s():
                machine.power_off()
            machine.faults.set(())
            machine.power_on()

    def calls(self) -> list[str]:
        """What kubectl was asked to change since the last time, such as `drain hgx-1`."""
        log = self.cluster.folder.parent / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith(("get", "annotate"))]

    def boots(self) -> dict[str, str]:
        """Boot id of each node's machine."""
        return {name: self.machine(name).store.disks.boot_id for name in self.nodes}


def new_rig(folder: Path, *hardware: Hardware) -> Rig:
    """A rack with its site as the stack of a project."""
    tools = Lab.from_environment()
    cluster = KubectlCluster(folder / "kubernetes")
    lab = Lab(home=folder / "lab", cache=tools.cache)
    lab.bin.mkdir(parents=True)
    for tool in tools.bin.iterdir():
        (lab.bin / tool.name).symlink_to(tool.resolve())
    (lab.bin / "kubectl").unlink(missing_ok=True)
    program = folder / "kubernetes" / "kubectl"
    program.write_text(KUBECTL)
    program.chmod(0o700)
    (lab.bin / "kubectl").symlink_to(program)

    project = folder / "project"
    project.mkdir()
    for name in {*FOLDERS, ".venv"} - {"stacks"}:
        (project / name).symlink_to(CHECKOUT / name)
    shutil.copytree(CHECKOUT / "stacks", project / "stacks", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "Pulumi.yaml").write_text((CHECKOUT / "Pulumi.yaml").read_text())
    (project / "__main__.py").write_text(PROGRAM)
    made = new_rack_site(folder / "machines", cluster, *hardware)
    rig = Rig(made.rack, made.site, cluster=cluster, lab=lab, project=project)
    rig.write_site()
    return rig
