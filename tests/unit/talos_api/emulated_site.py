"""Commands on emulated machines, and a kubectl that records what it was asked."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.machines.cluster_hooks import RecordedCluster
from lab.machines.node_object import Node
from talos.cli.main import main
from tests.unit.machines.emulated_rack import Bench

# Isolated and without site packages, which take most of a start; a test starts it a hundred times.
KUBECTL = (
    f"#!{sys.executable} -IS"
    """
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
state_file = os.path.join(folder, "state.json")
state = json.load(open(state_file))
arguments = sys.argv[1:]
kubeconfig = open(arguments[0].partition("=")[2]).read()
ours = ("--request-timeout", "--server")
words = [each for each in arguments[1:] if not each.startswith(ours)]
open(os.path.join(folder, "log"), "a").write(" ".join(words) + "\\n")
assert kubeconfig == "canary-kubeconfig", kubeconfig
assert "canary" not in " ".join(arguments) + json.dumps(dict(os.environ))
def address(node):
    return node.get("status", {}).get("addresses", [{}])[0].get("address")

if words[:2] == ["get", "nodes"]:
    assert words[2:4] == ["--selector", "node-role.kubernetes.io/control-plane"], words
    planes = [each for each in state["nodes"].values() if "apiServer" in each]
    print(json.dumps({"items": planes}))
    sys.exit()
if words[:2] == ["get", "crd"]:
    print("customresourcedefinition/" + words[2] if "volumes" in state else "")
    sys.exit()
if words[:2] == ["get", "volumes.longhorn.io"]:
    seen = state["volumes"].pop(0) if len(state["volumes"]) > 1 else state["volumes"][0]
    json.dump(state, open(state_file, "w"))
    print(json.dumps({"items": seen}))
    sys.exit()
if words[:2] == ["get", "poddisruptionbudgets"]:
    seen = state.get("budgets", [[]])
    print(json.dumps({"items": seen.pop(0) if len(seen) > 1 else seen[0]}))
    json.dump(state, open(state_file, "w"))
    sys.exit()
if words[:2] == ["get", "pods"] and "--field-selector" not in words:
    print(json.dumps({"items": [each for each in state["pods"] if words[3] == each["metadata"]["namespace"]]}))
    sys.exit()
if words[:2] == ["get", "pods"]:
    where = words.index("--field-selector") + 1
    found = [each for each in state.get("pods", []) if words[where] == f"spec.nodeName={each['spec']['nodeName']}"]
    label = words[words.index("--selector") + 1].split("=")
    print(json.dumps({"items": [each for each in found if each["metadata"]["labels"].get(label[0]) == label[1]]}))
    sys.exit()
if words[0] == "rollout":
    if words[1] == "status" and state.get("nowhere"):
        print("error: timed out waiting for the condition", file=sys.stderr)
        sys.exit(1)
    sys.exit()
if words[1] == "--raw":
    asked = next(each for each in arguments if each.startswith("--server="))
    for each in state["nodes"].values():
        if asked == f"--server=https://{address(each)}:6443":
            print(json.dumps({"gitVersion": each["apiServer"]}))
    sys.exit()
name = words[2] if words[1] == "node" else words[1]
node = state["nodes"].get(name)
if words[0] == "get" and node:
    made_file = os.path.join(folder, f"made-{name}.json")
    if os.path.exists(made_file):
        made = json.load(open(made_file))
        meta = node["metadata"] | {"labels": made["metadata"].get("labels", {}) | node["metadata"].get("labels", {})}
        meta["annotations"] = made["metadata"].get("annotations", {}) | meta.get("annotations", {})
        node = node | {"metadata": meta, "spec": node["spec"] | {"taints": made["spec"].get("taints", [])}}
    print(json.dumps(node))
elif words[0] == "annotate" and node:
    key = words[-1].partition("=")[0]
    node["metadata"]["annotations"].pop(key.rstrip("-"), None)
    if not key.endswith("-"):
        node["metadata"]["annotations"][key] = "x"
elif words[0] == "drain":
    node["spec"]["unschedulable"] = True
    if state.get("stuck"):
        print("error: Cannot evict pod as it would violate the pod's disruption budget.", file=sys.stderr)
        json.dump(state, open(state_file, "w"))
        sys.exit(1)
elif words[0] == "cordon":
    node["spec"]["unschedulable"] = True
elif words[0] == "uncordon":
    node["spec"].pop("unschedulable", None)
elif words[0] == "delete":
    state["nodes"].pop(name, None)
json.dump(state, open(state_file, "w"))
"""
)


class Kubectl:
    """The recorder: nodes that are Ready, and the calls in order."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        folder.mkdir()
        program = folder / "kubectl"
        program.write_text(KUBECTL)
        program.chmod(0o700)
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.write({"nodes": {name: {"metadata": {"annotations": {}}, "spec": {}, "status": ready} for name in names}})

    def follow(self, cluster: RecordedCluster) -> Kubectl:
        """Show what the machines set on their nodes, too; itself."""
        keep, alone = cluster.write, threading.Lock()

        def write(node: Node) -> None:
            keep(node)
            # Machines write beside each other, each in a thread of its own.
            with alone:
                draft = self.folder / "draft"
                draft.write_text(json.dumps(node))
                draft.replace(self.folder / f"made-{node['metadata']['name']}.json")

        cluster.write = write  # type: ignore[method-assign]
        for node in list(cluster.objects.values()):
            write(node)
        return self

    def write(self, state: dict[str, Any]) -> None:
        (self.folder / "state.json").write_text(json.dumps(state))

    def read(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return state

    def plane(self, name: str, address: str, api_server: str) -> None:
        """Make a node a control plane with an address and the version of its API server."""
        state = self.read()
        node = state["nodes"].setdefault(name, {"metadata": {}, "spec": {}, "status": {}})
        node["metadata"]["name"], node["apiServer"] = name, api_server
        node["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
        self.write(state)

    def calls(self) -> list[str]:
        """Verbs so far that change something."""
        log = self.folder / "log"
        verbs = [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        return [verb for verb in verbs if verb != "get"]


class Site:
    """Runs commands on machines, which are nodes of these names."""

    def __init__(
        self, bench: Bench, capsys: pytest.CaptureFixture[str], folder: Path, names: Mapping[str, str]
    ) -> None:
        self.bench, self._capsys, self._folder, self._names = bench, capsys, folder, names
        self.progress = ""
        """The progress output of the last command."""

    def __call__(self, command: str, machine: str, *options: str, config: bytes = b"", code: int = 0) -> Any:
        spec = self.bench.rack.machines[machine].spec
        argv = [command, "--address", f"{spec.address}:{spec.port}", "--name", self._names[machine], "--poll", "0.02"]
        if "--timeout" not in options:
            argv += ["--timeout", "60s"]
        if command in {"plan", "roll", "apply"}:
            (self._folder / "config").write_bytes(config)
            argv += ["--config", str(self._folder / "config")]
        ended = main([*argv, *options])
        shown = self._capsys.readouterr()
        self.progress = shown.err
        assert self.bench.bundle.trustd_token not in shown.out + shown.err
        assert ended == code, shown.err
        return json.loads(shown.out) if code == 0 else shown.err
