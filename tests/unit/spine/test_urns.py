"""Where each resource of a site is in the engine's tree: what changes here is replaced on every site that there is.

A resource that moves needs an alias, which its line here then shows. To accept a wanted change:
UPDATE_GOLDEN=1 pytest tests/unit/spine/test_urns.py
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sitectl.offline.mocked_program import KEY
from tests.unit.sitectl.sites_to_work_on import make_checkout

pytestmark = pytest.mark.row("C.04", "C.05")

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with a bundle of one definition a file, which needs no `sitectl bundle`."""
    folder = make_checkout(tmp_path_factory.mktemp("urns") / "project")
    (folder / "stacks").unlink()
    shutil.copytree(ROOT / "stacks", folder / "stacks")
    (pins,) = (folder / "stacks").rglob("versions.yaml")
    versions = yaml.safe_load(pins.read_text())
    bundle = folder / ".bundle"
    for name in versions["crds"]:
        versions["crds"][name] = _stub(bundle / "crds" / name, json.dumps({"items": [_definition(Path(name).stem)]}))
    versions["cilium"]["manifest"] = _stub(bundle / "cilium" / "cilium.yaml", "kind: ConfigMap\n")
    pins.write_text(yaml.safe_dump(versions))
    return folder


def _definition(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.example.org"},
        "spec": {"group": "example.org"},
    }


def _stub(file: Path, content: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return hashlib.sha256(content.encode()).hexdigest()


@pytest.mark.slow
def test_resources_are_where_existing_sites_have_them(project: Path) -> None:
    document = yaml.safe_load((project / "Pulumi.prod.yaml").read_text())
    (project / "site.json").write_text(json.dumps({"config": {KEY: document["config"][KEY]}}))
    out = project / "registered.json"
    subprocess.run(
        [sys.executable, "-m", "tests.unit.spine.registrations", str(out), "site.json"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=300,
    )
    registered = json.loads(out.read_text())
    golden = GOLDEN / "urns-prod.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text("".join(f"{line}\n" for line in registered))
    agreed = golden.read_text().splitlines()
    gone, new = (sorted(set(left) - set(other)) for left, other in ((agreed, registered), (registered, agreed)))
    assert not gone, "existing sites have these:\n  " + "\n  ".join(gone) + _now(new)
    assert registered == agreed


def _now(lines: list[str]) -> str:
    return "\nand the program now registers:\n  " + "\n  ".join(lines or ["nothing"])
