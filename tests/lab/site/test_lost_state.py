"""The state of the stack is lost, and the site comes back out of what still runs, by the commands of the runbook.

Helm installs over the objects of its release once its own records are gone: that is the official provider's way, whose
create of a release that Helm knows is an error (pulumi-kubernetes 9497796, provider/pkg/provider/helm_release.go,
helmCreate). The stand-in would take a known release over.
"""

from __future__ import annotations

import json
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab import deploy, session
from lab.machines import lab_rack
from lab.machines.admin import ask
from lab.paths import CHECKOUT, Lab
from tests.lab.site.cluster_objects import Object, declared, inventory
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("004.11", "C.04")]

CONTROL_PLANE = "198.18.49.10"


def boots(lab: Lab) -> dict[str, Any]:
    """The boot of each machine: another one after an installation."""
    return {shown["name"]: shown["boot_id"] for shown in ask(lab_rack.folder(lab), {"machine": "all"})}


def identities(objects: dict[str, Object]) -> dict[str, tuple[str, int]]:
    """Of what the program or a chart of its declared: which object it is, and how often it was written."""
    helm = {
        name
        for name, item in objects.items()
        if (item["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "Helm"
        and "helm.sh/hook" not in (item["metadata"].get("annotations") or {})
    }
    return {
        name: (objects[name]["metadata"]["uid"], objects[name]["metadata"].get("generation", 0))
        for name in helm | set(declared(objects))
    }


def run(site: Site, *words: str) -> str:
    done = subprocess.run(
        [*words], cwd=CHECKOUT, env=site.environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def recover(site: Site, folder: Path, talosconfig: str) -> None:
    """As the runbook states, with nothing but the talosconfig that was kept."""
    python = (sys.executable, "-m")
    kept, config, bundle = folder / "talosconfig", folder / "cp-1.yaml", folder / "secrets.yaml"
    kept.write_text(talosconfig)
    machine = ("--talosconfig", str(kept), "--address", session.moved(CONTROL_PLANE, site.lab.network))
    run(site, *python, "talos", "machine-config", *machine, "--output", str(config))
    run(site, *python, "talos", "secrets", "--from-config", str(config), "--output", str(bundle))
    run(site, *python, "talos", "kubeconfig", *machine, "--output", str(folder / "kubeconfig"))
    keys = ("--kubeconfig", str(folder / "kubeconfig"), "--output", str(folder / "recovered.json"))
    shown = run(site, *python, "sitectl", "recover", "lab", *keys, "--quiet")
    assert {stat.S_IMODE(file.stat().st_mode) for file in (config, bundle, folder / "recovered.json")} == {0o600}
    commands = [line.strip() for line in shown.splitlines() if line.strip().startswith("kubectl ")]
    assert len(commands) >= 2, "the releases of both gateway controllers"
    for command in commands:
        run(site, *shlex.split(command))


def test_a_lost_state_comes_back_with_the_same_keys_machines_and_objects(site: Site, tmp_path: Path) -> None:
    pulumi = Pulumi(site.lab, tmp_path)
    talosconfig = pulumi("stack", "output", "talosconfig", "--show-secrets").stdout
    keys, booted, before = deploy.front(site.lab).keys, boots(site.lab), inventory(site.lab)

    for state in (site.lab.pulumi / ".pulumi" / "stacks").rglob("*.json*"):
        state.unlink()
    assert pulumi.state().get("resources", []) == []
    recover(site, tmp_path, talosconfig)

    def name_the_files(document: Document) -> None:
        document["recovered"] = str(tmp_path / "recovered.json")
        document["cluster"]["machines"]["secrets_import"] = str(tmp_path / "secrets.yaml")

    edited = pulumi.edited(name_the_files)
    shown = json.loads(pulumi("preview", "--json", *edited).stdout)
    assert {step["op"] for step in shown["steps"]} == {"create"}
    pulumi("up", "--yes", "--skip-preview", *edited)

    after = inventory(site.lab)
    assert deploy.front(site.lab).keys == keys
    assert boots(site.lab) == booted, "no machine was installed or restarted"
    earlier, now = identities(before), identities(after)
    changed = sorted(name for name in earlier if now.get(name) != earlier[name])
    assert changed == [], "an object was replaced, deleted or written otherwise"
    assert _differing(declared(before), declared(after)) == []
    assert _values(after) == _values(before), "no key and no seed is another one"
    deploy.ask(deploy.front(site.lab), model="qwen3-32b")
    with site.http() as client:
        answered = client.post("/chat/completions", json=chat("qwen3-32b", tokens=8, stream=True))
    assert answered.status_code == 200, "the key from before"
    assert answered.text.rstrip().endswith("data: [DONE]")
    pulumi("preview", "--expect-no-changes", *edited)

    # Without the two keys, and so without the files: worded otherwise, and the values stay.
    pulumi("up", "--yes", "--skip-preview")
    assert deploy.front(site.lab).keys == keys
    assert boots(site.lab) == booted
    pulumi("preview", "--expect-no-changes")


def _differing(before: dict[str, Object], after: dict[str, Object]) -> list[str]:
    """Names alone: a comparison of whole sites takes pytest minutes to word."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _values(objects: dict[str, Object]) -> dict[str, Any]:
    """What Secrets of the program hold."""
    ours = declared(objects)
    return {name: item["data"] for name, item in objects.items() if name in ours and item["kind"] == "Secret"}
