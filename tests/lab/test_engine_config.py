"""What Pulumi's engine hands to the program of a stack file is what the unit tests think that it does.

Needs the built or an official `pulumi`, but no cluster.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lab import session
from lab.paths import CHECKOUT, Lab
from stacks.plan.site_plan import plan_file, plan_values
from stacks.site.loader import KEY

pytestmark = pytest.mark.row("C.05")

SITES = CHECKOUT / "tests" / "fixtures" / "sites"
PROGRAM = f"""
import pathlib, pulumi
project, _, name = {KEY!r}.partition(":")
pathlib.Path("handed-over.json").write_text(pulumi.Config(project).require(name))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checked-in project over a program that keeps what it was handed."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("Pulumi.yaml", "Pulumi.lab.yaml"):
        shutil.copy(CHECKOUT / name, folder)
    (folder / "__main__.py").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def lab(module_lab_of_tools: Lab) -> Lab:
    return module_lab_of_tools


def handed_over(lab: Lab, project: Path, stack_file: Path) -> str:
    copy = project / stack_file.name
    if not copy.exists():
        # Pulumi writes its salt into the file.
        shutil.copy(stack_file, copy)
    (project / "handed-over.json").unlink(missing_ok=True)
    session.run_pulumi(lab, "preview", "--config-file", str(copy), project=project)
    return (project / "handed-over.json").read_text()


# The lab's passphrase opens none of the others' secrets, so the file with another program's secret stays out.
@pytest.mark.parametrize(
    "name", sorted({path.stem for path in (SITES / "valid").glob("*.yaml")} - {"beside-other-config"})
)
def test_the_engine_hands_over_what_the_fixture_says(lab: Lab, project: Path, name: str) -> None:
    values = json.loads(handed_over(lab, project, SITES / "valid" / f"{name}.yaml"))
    assert values == json.loads((SITES / "engine" / f"{name}.json").read_text())
    assert plan_values(values, "engine").site == plan_file(SITES / "valid" / f"{name}.yaml").site


def test_the_engine_hands_over_the_words_of_the_fixture(lab: Lab, project: Path) -> None:
    values = json.loads(handed_over(lab, project, SITES / "words.yaml"))
    assert values == json.loads((SITES / "engine" / "words.json").read_text())


def test_the_labs_own_site_is_the_same_on_both_ways(lab: Lab, project: Path) -> None:
    values = json.loads(handed_over(lab, project, project / "Pulumi.lab.yaml"))
    assert plan_values(values, "engine").site == plan_file(CHECKOUT / "Pulumi.lab.yaml").site
