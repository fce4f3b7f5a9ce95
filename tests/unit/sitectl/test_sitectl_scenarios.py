"""The edits behind the recordings, applied to the program and the site of today, without an engine."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.model import Resource
from sitectl.change.changes import of_preview
from sitectl.offline import checkout
from sitectl.offline.mocked_program import KEY
from tests.fixtures.previews import kept
from tests.fixtures.previews.scenarios import SCENARIOS
from tests.lab.plain_site import make_plain
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout

pytestmark = [pytest.mark.processes, pytest.mark.row("opening 3", "C.06")]

LAB = yaml.safe_load((ROOT / "Pulumi.lab.yaml").read_text())


def declared(folder: Path, name: str) -> dict[str, Resource]:
    """What the program declares after this scenario's edit, by the resource's name."""
    project = make_checkout(folder, sites=())
    for part in ("__main__.py", "stacks"):
        (project / part).unlink()
    shutil.copy(ROOT / "__main__.py", project)
    shutil.copytree(ROOT / "stacks", project / "stacks", ignore=shutil.ignore_patterns("__pycache__"))
    scenario = SCENARIOS[name]
    scenario.edit_program(project)
    document: dict[str, Any] = copy.deepcopy(LAB)
    make_plain(document)
    scenario.site(document["config"][KEY])
    file = project / "Pulumi.lab.yaml"
    file.write_text(yaml.safe_dump(document))
    site = checkout.declare(project, {"lab": file})["lab"]
    assert not site.error, site.error
    return {resource.name: resource for resource in site.resources}


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Resource]:
    return declared(tmp_path_factory.mktemp("unchanged") / "project", "no-change")


PROGRAMS = sorted(name for name, scenario in SCENARIOS.items() if scenario.program != "__main__" or scenario.versions)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROGRAMS)
def test_another_program_changes_what_the_engine_recorded(
    unchanged: dict[str, Resource], tmp_path: Path, name: str
) -> None:
    after = declared(tmp_path / "project", name)
    both = unchanged.keys() & after.keys()
    changed = {name for name in unchanged.keys() | after.keys() if name not in both or unchanged[name] != after[name]}
    steps = of_preview(kept.read(name))
    # A machine's config is hidden on both sides, so only the engine sees that it changes.
    hidden = {step.name for step in steps if "stdin" in step.touched}
    assert changed - hidden == {step.name for step in steps} - hidden


def test_another_name_of_the_site_is_another_identity_of_its_provider(
    unchanged: dict[str, Resource], tmp_path: Path
) -> None:
    provider = "cluster"
    after = declared(tmp_path / "project", "provider-identity-changed")
    assert after[provider] != unchanged[provider]
