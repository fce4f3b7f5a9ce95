"""A tenant's key is a canary: it may be in its Kubernetes Secret and, encrypted, in the state; nowhere else.

Exempt, because the key has to be there: etcd (Secrets are base64 in it; encryption at rest is the cluster's own
setting) and Envoy, which compares against it in memory and shows it to all who reach its admin interface. Not asked
for here is `-v=9`: at that level the engine writes down whatever it sends to a plugin, secrets in plain text.
"""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import deploy
from lab.paths import CHECKOUT
from tests.lab.site.cluster_objects import declared, inventory
from tests.lab.site.pulumi_runs import Document, Pulumi
from tests.lab.site.running_site import Site

# The keys that the other tests of the session use are replaced.

# etcd's files, and what the pod runner gives to containers that mount a Secret.
_EXEMPT = ("etcd", "pods")


def forms(key: str) -> set[bytes]:
    """The key as text and as base64, alone or anywhere inside a larger text."""
    inside = {base64.b64encode(b" " * shift + key.encode())[4:-4] for shift in range(3)}
    return {key.encode(), key.removeprefix("sk-").encode(), base64.b64encode(key.encode()), *inside}


def files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        # Not entered: theirs come and go, which ends a walk that looks at them.
        folders[:] = [name for name in folders if name not in _EXEMPT]
        yield from (path for name in names if (path := Path(place, name)).is_file() and not path.is_symlink())


def test_a_key_is_nowhere_but_in_its_secret(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pulumi = Pulumi(site.lab, tmp_path)
    before = set(deploy.front(site.lab).keys.values())
    monkeypatch.setenv("PULUMI_DEBUG_COMMANDS", "true")

    def edit(document: Document) -> None:
        document["tenants"]["acme"]["keys"] |= {"laptop": {"rotation": 2}, "canary": {}}

    outputs = tmp_path / "outputs"
    outputs.mkdir()
    try:
        edited = pulumi.edited(edit)
        for number, run in enumerate(
            (
                ("up", "--yes", "--diff"),
                ("preview", "--json", "--show-config"),
                ("up", "--yes", "--skip-preview", "--debug"),
                ("refresh", "--yes", "--diff"),
            )
        ):
            options = ("--event-log", str(outputs / f"{number}-events")) if run[0] != "refresh" else ()
            done = pulumi(*run, *options, *edited)
            (outputs / f"{number}-{run[0]}").write_text(done.stdout + done.stderr)
        keys = set(deploy.front(site.lab).keys.values()) | before
        assert len(keys) == len(before) + 2, "one key is new, one was replaced"
        for command in ("output", "export"):
            (outputs / command).write_text(pulumi("stack", command).stdout)
        objects = inventory(site.lab)
    finally:
        pulumi("up", "--yes", "--skip-preview")

    needles = {form for key in keys for form in forms(key)}
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True).stdout
    searched = [
        *outputs.iterdir(),
        *files(site.lab.home),
        *(CHECKOUT / name for name in tracked.decode().split("\0") if name),
    ]
    assert any(path.is_relative_to(site.lab.pulumi) for path in searched)
    assert any(path.is_relative_to(site.lab.logs) for path in searched)
    assert {path.name for path in outputs.iterdir()} >= {"0-up", "0-events", "2-up", "2-events", "3-refresh", "export"}
    with_a_key = [str(path) for path in searched if path.is_file() and _holds(path, needles)]
    assert with_a_key == []
    holders = {name for name, item in objects.items() if any(form.decode() in str(item) for form in needles)}
    assert holders == {name for name in declared(objects) if name.startswith("Secret inference-gateway/keys-")}


def _holds(path: Path, needles: set[bytes]) -> bool:
    content = path.read_bytes()
    return any(needle in content for needle in needles)
