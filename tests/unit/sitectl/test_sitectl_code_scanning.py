"""What `validate` and `rules` find, as CI shows it at the lines of a change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import offline
from policy.listing import names
from sitectl.output.code_scanning import Result, sarif, workflow_commands
from tests.unit.sitectl.sites_to_work_on import make_checkout, run

pytestmark = pytest.mark.row("C.05")


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lab's site with a rule broken, and a copy with two mistakes."""
    folder = make_checkout(tmp_path_factory.mktemp("scan") / "project", sites=("lab",))
    (folder / "rules.lab.yaml").write_text(yaml.safe_dump({"sovereign": True, "registries": ["ghcr.io"]}))
    text = (folder / "Pulumi.lab.yaml").read_text()
    # A separate site, next to the lab's.
    own = text.replace("name: lab", "name: bad").replace("198.18.", "198.19.")
    bad = own.replace("catalogue: glm-5.1-fp8", "catalogue: glm-5,1%").replace("priority: 100", "priority: high")
    (folder / "Pulumi.bad.yaml").write_text(bad)
    return folder


def lines(file: Path, *words: str) -> list[int]:
    return [
        number for number, line in enumerate(file.read_text().splitlines(), 1) if any(word in line for word in words)
    ]


def located(log: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    places = []
    for result in log["runs"][0]["results"]:
        place = result["locations"][0]["physicalLocation"]
        at = (place["artifactLocation"]["uri"], place["region"]["startLine"])
        places.append((result["ruleId"], result["level"], *at))
    return places


def test_mistakes_of_a_site_are_results_at_their_lines(wrong: Path) -> None:
    ran = run(wrong, "validate", "--format", "sarif")
    assert ran.status == 1
    log = json.loads(ran.out)
    assert (log["version"], log["runs"][0]["tool"]["driver"]["name"]) == ("2.1.0", "sitectl")
    at = lines(wrong / "Pulumi.bad.yaml", "glm-5,1%", "priority: high")
    assert sorted(located(log)) == [("site-file", "error", "Pulumi.bad.yaml", line) for line in at]
    texts = [result["message"]["text"] for result in log["runs"][0]["results"]]
    assert all("fix: " in text and str(wrong) not in text for text in texts)


@pytest.mark.slow
def test_broken_rules_are_results_of_the_sites_file(wrong: Path) -> None:
    ran = run(wrong, "rules", "lab", "--format", "sarif")
    assert ran.status == 1
    log = json.loads(ran.out)
    ids = {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert ids >= set(names())
    # Images, and the Jobs that bring weights from a hub which the site does not list.
    rules = ("sovereign-registries", "sovereign-egress")
    assert set(located(log)) == {(rule, "error", "Pulumi.lab.yaml", 1) for rule in rules}
    assert {result["ruleId"] for result in log["runs"][0]["results"]} <= ids


@pytest.mark.slow
def test_a_site_that_cannot_be_rendered_is_a_result(wrong: Path) -> None:
    log = json.loads(run(wrong, "rules", "bad", "--format", "sarif").out)
    assert located(log) == [("renders", "error", "Pulumi.bad.yaml", 1)]


def test_annotations_name_file_line_and_fix(wrong: Path) -> None:
    result = run(wrong, "validate", "bad", "--format", "github")
    assert result.status == 1
    at = lines(wrong / "Pulumi.bad.yaml", "glm-5,1%", "priority: high")
    starts = [f"::error file=Pulumi.bad.yaml,line={line},title=site-file::" for line in at]
    reported = result.out.splitlines()
    assert [line[: len(start)] for line, start in zip(reported, starts, strict=True)] == starts
    assert "glm-5,1%25" in reported[0]
    assert all("%0A  fix: " in line for line in reported)


def test_what_is_right_says_nothing(wrong: Path) -> None:
    assert located(json.loads(run(wrong, "validate", "lab", "--format", "sarif").out)) == []
    result = run(wrong, "validate", "lab", "--format", "github")
    assert (result.status, result.out.strip()) == (0, "")


def test_no_text_ends_an_annotation_or_begins_another() -> None:
    log = sarif([Result(rule="a:b,c", level="note", text="one\r\n::error::two 100%", file="x,y:z")], {})
    assert workflow_commands(log) == "::notice file=x%2Cy%3Az,line=1,title=a%3Ab%2Cc::one%0D%0A::error::two 100%25"


@pytest.mark.parametrize("on_github", [True, False])
def test_the_offline_job_keeps_and_shows_them(
    wrong: Path, tmp_path: Path, on_github: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"GITHUB_ACTIONS": "true"} if on_github else {}
    assert offline.main(["--out", str(tmp_path), "--project", str(wrong)], environment) == 1
    kept = {name: json.loads((tmp_path / f"{name}.sarif").read_text()) for name in ("validate", "rules")}
    assert {rule for log in kept.values() for rule, *_ in located(log)} == {
        "site-file",
        "renders",
        "sovereign-registries",
        "sovereign-egress",
    }
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::error")]
    assert len(shown) == (sum(len(located(log)) for log in kept.values()) if on_github else 0)
