"""What Pulumi's engine hands to the program of a stack file is what the unit tests think that it does.

Needs the built or an official `pulumi`, but no cluster.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lab import session
from lab.paths import CHECKOUT, Lab
from stacks.plan.site_plan import plan_file, plan_values
from stacks.site.loader import KEY

pytestmark = pytest.mark.row("C.05")

Document = dict[str, Any]

SITES = CHECKOUT / "tests" / "fixtures" / "sites"
HEAD = "config:\n  inference-platform:site:"
LABS = "Pulumi.lab.yaml"
# Files that are odd as a whole. The lab's passphrase opens none of the others' secrets, so the one with another
# program's secret stays out.
WHOLE = ("anchors", "as-json", "windows")
NAMES = sorted({path.stem for path in (SITES / "valid").glob("*.yaml")} - {"beside-other-config"})
PROGRAM = f"""
import json, pathlib, pulumi
config = pulumi.Config({KEY.partition(":")[0]!r})
values = {{name: config.get(name) for name in ("site", "words", *{NAMES!r})}}
pathlib.Path("handed-over.json").write_text(json.dumps(values))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checked-in project over a program that keeps what it was handed."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("Pulumi.yaml", LABS):
        shutil.copy(CHECKOUT / name, folder)
    (folder / "__main__.py").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def lab(module_lab_of_tools: Lab) -> Lab:
    return module_lab_of_tools


@pytest.fixture(scope="module")
def together(lab: Lab, project: Path) -> Document:
    """What the engine hands over of one stack file that has each site under a name of its own, by that name."""
    texts = [SITES / "words.yaml", *(SITES / "valid" / f"{name}.yaml" for name in NAMES if name not in WHOLE)]
    joined = project / "Pulumi.joined.yaml"
    joined.write_text("config:" + "".join(f"\n  inference-platform:{path.stem}:{_after_head(path)}" for path in texts))
    return handed_over(lab, project, joined)


def _after_head(path: Path) -> str:
    _, head, text = path.read_text().partition(HEAD)
    assert head, f"{path}: no {HEAD}"
    return text


def handed_over(lab: Lab, project: Path, stack_file: Path) -> Document:
    """By name; Pulumi writes its salt into the file."""
    session.run_pulumi(lab, "preview", "--config-file", str(stack_file), project=project)
    texts = json.loads((project / "handed-over.json").read_text())
    return {name: json.loads(text) for name, text in texts.items() if text}


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_hands_over_what_the_fixture_says(lab: Lab, project: Path, together: Document, name: str) -> None:
    file = SITES / "valid" / f"{name}.yaml"
    values = handed_over(lab, project, Path(shutil.copy(file, project)))["site"] if name in WHOLE else together[name]
    assert values == json.loads((SITES / "engine" / f"{name}.json").read_text())
    assert plan_values(values, "engine").site == plan_file(file).site


def test_the_engine_hands_over_the_words_of_the_fixture(together: Document) -> None:
    assert together["words"] == json.loads((SITES / "engine" / "words.json").read_text())


def test_the_labs_own_site_is_the_same_on_both_ways(lab: Lab, project: Path) -> None:
    values = handed_over(lab, project, project / LABS)["site"]
    assert plan_values(values, "engine").site == plan_file(CHECKOUT / LABS).site
