"""A setting, a rule and a fault that are made up work in a copy of the project, with few files of their lists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.docs.test_extending import ROOT, file_list

pytestmark = [pytest.mark.processes, pytest.mark.exhaustive, pytest.mark.row("C.03")]

Edits = Mapping[str, Sequence[tuple[str, str]]]
"""File -> (a text of it, what comes in front of it)."""

SETTING: Edits = {
    "stacks/plan/settings/host.py": [
        (
            '    Definition(\n        key="memory_request_gib"',
            '    Definition(\n        key="scratch_request_gib",\n        unit="GiB",\n'
            '        formula="2 per process",\n'
            "        derive=lambda basis: Derived(value=2 * processes(basis.case)),\n"
            '        used="disk that the container of vLLM requests",\n'
            '        places=(Place(kind="field", name="resources.requests.ephemeral-storage"),),\n'
            "        bounds=_on_a_node(_MOST_GIB),\n    ),\n",
        )
    ],
    "stacks/site/demand.py": [
        (
            "    memory_request_gib: Overridden",
            '    scratch_request_gib: OverriddenCount | None = None\n    """GiB of disk that a replica requests."""\n',
        )
    ],
    "components/specs/model_server.py": [("    memory_request_gib: int\n", "    scratch_request_gib: int\n")],
    "components/models/model_server.py": [
        (
            "    volumes, mounts = weights.server_volumes",
            '    if spec.engine == "vllm":\n'
            '        requests |= {"ephemeral-storage": f"{plan.scratch_request_gib}Gi"}\n',
        )
    ],
    "tests/unit/spine/test_rendered_settings.py": [
        (
            '        "memory": container[',
            '        "scratch": container["resources"]["requests"].get("ephemeral-storage", ""),\n',
        ),
        ('        ("memory_request_gib", 31,', '        ("scratch_request_gib", 9, {"scratch": "9Gi"}),\n'),
    ],
    "docs/settings.md": [("set it by `overrides.cpu_request_cores`", "set `overrides.scratch_request_gib`; ")],
}
RULE: Edits = {
    "policy/serving.py": [
        (
            "def shared_volume(",
            "def has_a_team(resources: Sequence[Resource], facts: SiteFacts) -> Iterator[Finding]:  # noqa: ARG001\n"
            "    for model in _models(resources):\n"
            '        if model.body["metadata"].get("labels", {}).get("team") == "nobody":\n'
            '            yield Finding(resource=model.label, problem="belongs to no team", fix="name a team")\n\n\n',
        )
    ],
    "policy/listing.py": [
        (
            '    Rule(\n        name="shared-volume"',
            '    Rule(name="has-a-team", says="A model belongs to a team.", check=serving.has_a_team),\n',
        )
    ],
    "tests/unit/rules/broken_sites.py": [
        (
            '    ("shared-volume", ""): Broken(',
            '    ("has-a-team", ""): Broken(\n'
            '        change=lambda objects: objects["deployment"]["metadata"].update(labels={"team": "nobody"}),\n'
            '        says="belongs to no team",\n    ),\n',
        )
    ],
    "docs/how-to/waive-a-rule.md": [("| `shared-volume` |", "| `has-a-team` | A model belongs to a team. |\n")],
}
FAULT: Edits = {
    "lab/machines/faults.py": [
        ('"installer-fails", "service-down"', '"disk-full", '),
        ("    - installer-fails: ", "    - disk-full: the installer finds no room\n"),
        (
            "    def installer_fails(self)",
            '    def disk_full(self) -> bool:\n        return bool(self._use("disk-full"))\n\n',
        ),
    ],
    "lab/machines/handlers.py": [
        (
            "    if machine.faults.installer_fails():",
            "    if machine.faults.disk_full():\n"
            '        yield "emulated installer: no space left on device\\n"\n        yield 28\n        return\n',
        )
    ],
    "tests/unit/machines/test_machines_faults.py": [
        (
            "def test_the_installer_fails(",
            "def test_a_full_disk_ends_the_installer(running: Bench) -> None:\n"
            '    running.rack.machines["m2"].faults.set((Fault(kind="disk-full", times=1),))\n'
            '    image = running.installer(Schematic(), "v1.13.8")\n'
            '    with running.client("m2") as client:\n        client.pull_image(image)\n'
            '        with pytest.raises(UpgradeFailedError, match="ended with 28"):\n'
            "            client.install_upgrade(image)\n\n\n",
        )
    ],
}


@dataclass(frozen=True)
class MadeUp:
    """A part, the most files that one may take, and what shows that it works: commands and what they print."""

    edits: Edits
    most: int
    tests: Sequence[str]
    shown: Mapping[tuple[str, ...], str]


PLANNED = """
from tests.unit.spine.test_rendered_settings import places
print(places()["scratch"], places(overrides={"scratch_request_gib": 9})["scratch"])
from stacks.site.reference import render
print([line for line in render().splitlines() if "scratch_request_gib.value" in line][0])
"""
PARTS = {
    "setting": MadeUp(
        edits=SETTING,
        most=8,
        tests=("tests/unit/spine/test_rendered_settings.py",),
        shown={("-c", PLANNED): "4Gi 9Gi\n| `<name>.overrides.scratch_request_gib.value` | whole number |"},
    ),
    "rule": MadeUp(
        edits=RULE,
        most=5,
        tests=("tests/unit/rules/test_rules_listing.py", "tests/unit/ci/test_ci_documented.py"),
        shown={
            ("-m", "sitectl", "rules", "--list"): "has-a-team",
            ("-m", "sitectl", "rules", "lab"): "lab: 0 broken",
        },
    ),
    "fault": MadeUp(
        edits=FAULT,
        most=6,
        tests=("tests/unit/machines/test_machines_faults.py",),
        shown={("-m", "lab.machines", "fault", "--help"): "disk-full"},
    ),
}


def copied(folder: Path, edits: Edits) -> Path:
    """The project there, where folders with edits are copies and all others lead here."""
    folder.mkdir()
    changed = {file.partition("/")[0] for file in edits}
    for path in sorted(ROOT.iterdir()):
        if path.name in changed:
            shutil.copytree(path, folder / path.name)
        elif path.name not in {".git", ".lab"}:
            (folder / path.name).symlink_to(path)
    for file, places in edits.items():
        text = (folder / file).read_text()
        for before, added in places:
            assert text.count(before) == 1, f"{file}: {before}"
            text = text.replace(before, added + before)
        (folder / file).write_text(text)
    return folder


def ran(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", PARTS)
def test_a_made_up_part_works_with_the_files_of_its_list(kind: str, tmp_path: Path) -> None:
    part, listed = PARTS[kind], file_list(kind)
    assert [file for file in part.edits if not listed.holds(file)] == []
    assert len(part.edits) <= part.most
    folder = copied(tmp_path / "project", part.edits)
    for words, text in part.shown.items():
        # A command breaks its lines where they are long.
        assert "".join(text.split()) in "".join(ran(folder, *words).split())
    ran(folder, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider", *part.tests)
