"""`python -m bundle` on a real API server."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bundle.applying import Cluster, apply, remove
from bundle.errors import BundleError
from tests.lab.plugin_kubernetes.conftest import Plane

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
def said(plane: Plane) -> tuple[Cluster, list[str]]:
    lines: list[str] = []
    return Cluster(kubeconfig=plane.kubeconfig.read_text(), say=lines.append), lines


def test_definitions_come_change_stay_and_go_with_their_file(
    plane: Plane, said: tuple[Cluster, list[str]], tmp_path: Path
) -> None:
    cluster, lines = said
    assert apply(cluster, *write(tmp_path, definition("first"), definition("other")), MANAGER) == 2
    # What somebody changes is taken back, and what a newer file lacks stays and is named.
    by_hand = json.dumps([{"op": "add", "path": "/spec/names/shortNames", "value": ["hand"]}])
    plane.kubectl("patch", "crd", "first.bundle.example.org", "--type=json", f"--patch={by_hand}")
    changed = definition("first", size={"type": "integer"})
    changed["spec"]["names"]["shortNames"] = ["fst"]
    assert apply(cluster, *write(tmp_path, changed), MANAGER) == 1
    live = plane.get("crd", "first.bundle.example.org")
    assert live["spec"]["names"]["shortNames"] == ["fst"]
    assert "size" in json.dumps(live["spec"]["versions"])
    assert live["metadata"]["labels"][LABEL] == "made-up"
    assert [line.partition(" ")[0] for line in lines if "stays" in line] == ["other.bundle.example.org"]
    remove(cluster, "made-up")
    remove(cluster, "made-up")
    assert not [name for name in plane.names("crd") if "bundle.example.org" in name]


def test_definitions_that_a_state_has_as_objects_are_left_alone(
    plane: Plane, said: tuple[Cluster, list[str]], tmp_path: Path
) -> None:
    """At its end, the `up` of a program that no longer declares them would delete them."""
    held = definition("held")
    held["metadata"]["annotations"] = {"pulumi.com/patchFieldManager": MANAGER}
    file, sha256 = write(tmp_path, held)
    plane.kubectl("apply", "--server-side", f"--field-manager={MANAGER}", "--filename", str(file))
    with pytest.raises(BundleError, match=r"1 of these definitions as objects, held\.bundle\.example\.org first"):
        apply(said[0], file, sha256, MANAGER)
    assert LABEL not in json.dumps(plane.get("crd", "held.bundle.example.org"))
    plane.kubectl("annotate", "crd", "held.bundle.example.org", "pulumi.com/patchFieldManager-")
    file, sha256 = write(tmp_path, definition("held"))
    assert apply(said[0], file, sha256, MANAGER) == 1
    remove(said[0], "made-up")


def test_a_file_that_changed_and_a_cluster_that_is_away_are_named(plane: Plane, tmp_path: Path) -> None:
    file, sha256 = write(tmp_path, definition("first"))
    command = [sys.executable, "-m", "bundle", "apply", str(file), "--release", "v1", "--manager", MANAGER]
    wrong = [*command, "--sha256", "0" * 64, "--kubeconfig", str(plane.kubeconfig)]
    done = subprocess.run(wrong, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: {file} changed since it was checked; got {sha256}; allowed: {'0' * 64}\n"
        "  fix: python -m sitectl bundle\n"
    )
    away = Cluster(
        kubeconfig=plane.kubeconfig.read_text().replace("server: https://127.0.0.1:", "server: https://127.0.0.1:1"),
        say=lambda _: None,
        patience_s=0,
    )
    with pytest.raises(BundleError, match="the cluster does not answer"):
        apply(away, file, sha256, MANAGER)
