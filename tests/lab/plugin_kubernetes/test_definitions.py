"""`python -m definitions` on a real API server."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from definitions.applying import Cluster, apply, lacking
from definitions.errors import DefinitionsError
from tests.lab.plugin_kubernetes.conftest import Plane
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("000.30")

MANAGER = "inference-platform-lab"
LABEL = "inference-platform/definitions"


def definition(plural: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.bundle.example.org"},
        "spec": {
            "group": "bundle.example.org",
            "names": {"plural": plural, "kind": plural.capitalize()},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def write(folder: Path, *definitions: dict[str, Any]) -> tuple[Path, str]:
    file = folder / "made-up.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}))
    return file, hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def run(plane: Plane) -> tuple[Cluster, list[str]]:
    lines: list[str] = []
    return Cluster(kubeconfig=plane.kubeconfig.read_text(), say=lines.append), lines


def test_definitions_come_change_and_stay(plane: Plane, run: tuple[Cluster, list[str]], tmp_path: Path) -> None:
    cluster, lines = run
    assert apply(cluster, *write(tmp_path, definition("first"), definition("other")), MANAGER) == 2
    # What somebody changes is taken back, and what a newer file lacks stays and is named.
    by_hand = json.dumps([{"op": "add", "path": "/spec/names/shortNames", "value": ["hand"]}])
    plane.kubectl("patch", "crd", "first.bundle.example.org", "--type=json", f"--patch={by_hand}")
    changed = definition("first", size={"type": "integer"})
    changed["spec"]["names"]["shortNames"] = ["fst"]
    file, sha256 = write(tmp_path, changed)
    assert apply(cluster, file, sha256, MANAGER) == 1
    live = plane.get("crd", "first.bundle.example.org")
    assert live["spec"]["names"]["shortNames"] == ["fst"]
    assert "size" in json.dumps(live["spec"]["versions"])
    assert live["metadata"]["labels"][LABEL] == "made-up"
    assert [line.partition(" ")[0] for line in lines if "stays" in line] == ["other.bundle.example.org"]
    plane.kubectl("delete", "crd", "other.bundle.example.org", "first.bundle.example.org")


def test_only_a_file_that_was_applied_can_lack_a_definition(
    plane: Plane, run: tuple[Cluster, list[str]], tmp_path: Path
) -> None:
    """Another release may have kinds that are not there yet."""
    cluster, _ = run
    file, sha256 = write(tmp_path, definition("first"), definition("other"))
    names = ["first.bundle.example.org", "other.bundle.example.org"]
    assert lacking(cluster.kubeconfig, {sha256: names}) == set()
    apply(cluster, file, sha256, MANAGER)
    assert lacking(cluster.kubeconfig, {sha256: names, "0" * 64: [*names, "newer.example.org"]}) == set()
    plane.kubectl("delete", "crd", "first.bundle.example.org")
    assert lacking(cluster.kubeconfig, {sha256: names}) == {"first.bundle.example.org"}
    plane.kubectl("delete", "crd", "other.bundle.example.org")


def test_definitions_of_others_are_theirs_until_they_are_handed_over(
    plane: Plane, run: tuple[Cluster, list[str]], tmp_path: Path
) -> None:
    file, sha256 = write(tmp_path, definition("theirs"))
    plane.kubectl("apply", "--server-side", "--field-manager=helm", "--filename", str(file))
    with pytest.raises(DefinitionsError, match="of the definitions of made-up were installed by others") as refused:
        apply(run[0], file, sha256, MANAGER)
    (command,) = re.findall(r"hand them over: kubectl (.*)", str(refused.value))
    plane.kubectl(*command.split())
    assert apply(run[0], file, sha256, MANAGER) == 1
    plane.kubectl("delete", "crd", "theirs.bundle.example.org")


def test_definitions_that_a_state_has_as_objects_are_left_alone(
    plane: Plane, run: tuple[Cluster, list[str]], tmp_path: Path
) -> None:
    """At its end, the `up` of a program that no longer declares them would delete them."""
    held = definition("held")
    held["metadata"]["annotations"] = {"pulumi.com/patchFieldManager": MANAGER}
    file, sha256 = write(tmp_path, held)
    plane.kubectl("apply", "--server-side", f"--field-manager={MANAGER}", "--filename", str(file))
    with pytest.raises(
        DefinitionsError, match=rf"1 of these definitions as objects, held\.bundle\.example\.org first, as {MANAGER}"
    ):
        apply(run[0], file, sha256, MANAGER)
    assert LABEL not in json.dumps(plane.get("crd", "held.bundle.example.org"))
    plane.kubectl("annotate", "crd", "held.bundle.example.org", "pulumi.com/patchFieldManager-")
    file, sha256 = write(tmp_path, definition("held"))
    assert apply(run[0], file, sha256, MANAGER) == 1
    plane.kubectl("delete", "crd", "held.bundle.example.org")


@pytest.mark.row("C.04")
def test_a_kind_that_an_api_server_accepted_before_it_died_is_served(
    plane: Plane, run: tuple[Cluster, list[str]], tmp_path: Path
) -> None:
    file, sha256 = write(tmp_path, definition("first"))
    apply(run[0], file, sha256, MANAGER)
    server = plane.pid("kube-apiserver")
    os.kill(server, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{server}").exists())
    put_back_to_accepted(plane, "first.bundle.example.org")
    plane.kwokctl("start", "cluster", "--wait", "180s")
    apply(run[0], file, sha256, MANAGER)
    live = plane.get("crd", "first.bundle.example.org")
    assert {entry["type"]: entry["status"] for entry in live["status"]["conditions"]}["Established"] == "True"
    assert live["metadata"]["annotations"] == {"inference-platform/definitions-sha256": sha256}
    plane.kubectl("delete", "crd", "first.bundle.example.org")


def put_back_to_accepted(plane: Plane, name: str) -> None:
    """Write into etcd what it has between the acceptance of a definition's names and the service of its kind."""
    key = base64.b64encode(f"/registry/apiextensions.k8s.io/customresourcedefinitions/{name}".encode()).decode()
    etcd = httpx.Client(base_url=plane.etcd)
    (entry,) = etcd.post("/v3/kv/range", json={"key": key}).raise_for_status().json()["kvs"]
    stored = base64.b64decode(entry["value"]).decode()
    # Byte by byte, so that an apply of the same content writes nothing.
    accepted = stored.replace('"InitialNamesAccepted"', '"Installing"').replace(
        '"Established","status":"True"', '"Established","status":"False"'
    )
    assert accepted != stored
    value = base64.b64encode(accepted.encode()).decode()
    etcd.post("/v3/kv/put", json={"key": key, "value": value}).raise_for_status()


def test_a_file_that_changed_and_a_cluster_that_is_away_are_named(plane: Plane, tmp_path: Path) -> None:
    file, sha256 = write(tmp_path, definition("first"))
    command = [sys.executable, "-m", "definitions", "apply", str(file), "--release", "v1", "--manager", MANAGER]
    wrong = [*command, "--sha256", "0" * 64, "--kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: {file} changed since it was checked; got {sha256}; allowed: {'0' * 64}\n"
        "  fix: python -m sitectl bundle\n"
    )
    text = plane.kubeconfig.read_text()
    unanswered = re.sub(r"server: https://127\.0\.0\.1:\d+", "server: https://127.0.0.1:1", text)
    away = Cluster(kubeconfig=unanswered, say=lambda _: None, patience_s=0)
    with pytest.raises(DefinitionsError, match="the cluster does not answer"):
        apply(away, file, sha256, MANAGER)
