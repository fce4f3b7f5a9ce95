"""The workflows for sites and for the project: pinned, with few rights, and with no text of a change in a command."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import evidence, offline, previews
from sitectl.shell.cli import COMMAND_LINE
from tests.command_lines import refusal
from tests.unit.sitectl.sites_to_work_on import git

pytestmark = pytest.mark.row("opening 3", "C.06")

ROOT = Path(__file__).parents[3]
CI = ROOT / "ci"
OWN = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
"""What tests the project itself."""
GITHUB = [*sorted((CI / "github").glob("*.yml")), *OWN]
GITLAB = CI / "gitlab" / "sites.yml"
# What a pull request's author chooses, by GitHub's own list of untrusted input; also in expressions of other names.
UNTRUSTED = re.compile(
    r"github\.(head_ref|event\.(issue|pull_request|comment|review|review_comment|commits|head_commit|pages)"
    r"\.[\w.\[\]]*(title|body|ref|label|name|email|message|default_branch|page_name))"
)


def workflow(path: Path) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load(path.read_text())
    return content


def steps(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for job, definition in workflow(path)["jobs"].items():
        for step in definition["steps"]:
            yield job, step


def commands(path: Path) -> Iterator[str]:
    yield from (step["run"] for _, step in steps(path) if "run" in step)


def secrets_of(definition: dict[str, Any]) -> set[str]:
    return set(re.findall(r"secrets\.(\w+)|github\.(token)", str(definition)))


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    uses = [step["uses"] for _, step in steps(path) if "uses" in step]
    assert uses
    assert [use for use in uses if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", use)] == []
    for line in path.read_text().splitlines():
        assert "uses:" not in line or re.search(r"# v\d+\.\d+\.\d+$", line), "a reader sees which version it is"


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_no_expression_stands_in_a_command(path: Path) -> None:
    """An expression is put into the script before a shell reads it; a variable is not."""
    assert [command for command in commands(path) if "${{" in command] == []


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_no_text_of_the_author_is_used_anywhere(path: Path) -> None:
    assert not UNTRUSTED.search(path.read_text().replace("head.repo.full_name", ""))


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_no_trigger_runs_a_fork_with_our_rights(path: Path) -> None:
    triggers = workflow(path)[True]  # YAML reads `on` as a truth value
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(triggers)


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_permissions_are_few(path: Path) -> None:
    content = workflow(path)
    assert content["permissions"] in ({}, {"contents": "read"})
    for job in content["jobs"].values():
        rights = job.get("permissions", content["permissions"])
        assert rights.get("contents", "read") == "read"
        writes = [name for name, right in rights.items() if right == "write"]
        assert writes in ([], ["pull-requests"], ["issues"])
        assert job["timeout-minutes"] <= (360 if path.name == "nightly.yml" else 120)


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_no_checkout_leaves_its_token_behind(path: Path) -> None:
    for _, step in steps(path):
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_a_job_without_credentials_has_none() -> None:
    """Forks run it."""
    path = CI / "github" / "offline.yml"
    assert not secrets_of(workflow(path))
    assert "environment" not in str(workflow(path)["jobs"])


@pytest.mark.parametrize(
    ("file", "job", "environment"),
    [("plan.yml", "preview", "preview"), *[("drift.yml", job, "nightly") for job in ("look", "evidence")]],
)
def test_who_runs_the_change_may_not_write(file: str, job: str, environment: str) -> None:
    """The nightly job has an environment of its own: one with reviewers waits for them each night."""
    definition = workflow(CI / "github" / file)["jobs"][job]
    assert definition["permissions"] == {"contents": "read"}
    assert definition["environment"] == environment
    assert "github.token" not in str(definition)


@pytest.mark.parametrize(("file", "job"), [("plan.yml", "comment"), ("drift.yml", "issues")])
def test_who_may_write_runs_the_target_and_knows_no_site(file: str, job: str) -> None:
    definition = workflow(CI / "github" / file)["jobs"][job]
    assert "secrets." not in str(definition)
    checkout = definition["steps"][0]["with"]
    if file == "plan.yml":
        assert checkout["ref"] == "${{ github.event.pull_request.base.sha }}"


def test_a_change_and_a_night_run_targets_that_exist() -> None:
    """And the log of the night is kept, also of one that failed."""
    asked = [line for path in OWN for line in commands(path)]
    assert [".ci/run" in line for line in asked] == [True, False]
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert "make test </dev/null" in (ROOT / ".ci" / "run").read_text()
    assert set(re.findall(r"make ([\w-]+)", asked[1])) == {"test-all"} <= targets
    night = workflow(OWN[1])["jobs"]["test"]["steps"]
    assert night[-1]["with"]["path"] in night[-2]["run"] and night[-2]["shell"] == "bash"
    assert night[-1]["if"] == "always()"
    assert not any(secrets_of(workflow(path)) for path in OWN)


def test_a_bundle_that_is_not_there_is_reported_and_the_other_sites_go_on() -> None:
    fetching = [step for path in GITHUB for _, step in steps(path) if "sitectl bundle" in step.get("run", "")]
    assert [(step["run"], step["continue-on-error"]) for step in fetching] == [("bin/sitectl bundle", True)] * 2
    (line,) = (line for line in workflow(GITLAB)[".pulumi"]["before_script"] if "sitectl bundle" in line)
    done = subprocess.run(
        ["sh", "-ec", line.replace("bin/sitectl bundle", "(exit 3)", 1)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "sitectl bundle ended with status 3\n")


def test_each_night_keeps_the_heads_of_audits_longer_than_previews() -> None:
    (kept,) = (
        step["with"]
        for job, step in steps(CI / "github" / "drift.yml")
        if job == "evidence" and "upload-artifact" in step.get("uses", "")
    )
    assert (kept["path"], kept["retention-days"]) == ("evidence", 90)
    job = gitlab_jobs()["sites, evidence"]
    assert (job["artifacts"]["paths"], job["artifacts"]["expire_in"]) == (["evidence"], "1 year")
    assert job["rules"] == gitlab_jobs()["sites, look for drift"]["rules"]


def test_only_branches_of_the_repository_reach_the_credentials() -> None:
    definition = workflow(CI / "github" / "plan.yml")["jobs"]["preview"]
    assert definition["if"] == "github.event.pull_request.head.repo.full_name == github.repository"


def test_the_engine_is_the_sdks() -> None:
    version = importlib.metadata.version("pulumi")
    for path in (CI / "github" / "plan.yml", CI / "github" / "drift.yml"):
        installed = {
            step["with"]["pulumi-version"] for _, step in steps(path) if "pulumi/actions" in step.get("uses", "")
        }
        assert installed == {version}
    assert workflow(GITLAB)[".pulumi"]["image"] == {"name": f"pulumi/pulumi:{version}", "entrypoint": [""]}


def gitlab_jobs() -> dict[str, dict[str, Any]]:
    content = workflow(GITLAB)
    return {
        name: {**content.get(job.get("extends", ""), {}), **job} for name, job in content.items() if "script" in job
    }


def test_gitlab_images_are_exact_and_jobs_have_a_stage() -> None:
    stages = workflow(GITLAB)["stages"]
    assert len(gitlab_jobs()) == 6
    for job in gitlab_jobs().values():
        image = job["image"]
        assert re.search(r":\d+\.\d+\.\d+", image if isinstance(image, str) else image["name"])
        assert job["stage"] in stages


def test_gitlab_asks_for_the_same_project_before_credentials() -> None:
    for name, job in gitlab_jobs().items():
        conditions = [rule["if"] for rule in job["rules"]]
        alone = all(
            "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID" in condition or '"schedule"' in condition
            for condition in conditions
        )
        assert alone == ("environment" in job), name


def test_gitlab_keeps_the_token_from_the_change() -> None:
    """The environment that has the token is entered by jobs alone that run the target's code."""
    for job in gitlab_jobs().values():
        named = job.get("environment", {}).get("name")
        runs = " ".join(job["script"])
        assert (named == "forge") == ("sitectl" in runs)
        if named == "forge" and "comment" in runs:
            assert job["before_script"][:2] == [
                'TARGET="$(mktemp -d)"',
                'git worktree add --detach "$TARGET" "$CI_MERGE_REQUEST_DIFF_BASE_SHA"',
            ]
            assert job["script"][0] == 'cd "$TARGET"'


def test_gitlabs_target_is_checked_out_twice_on_one_runner(tmp_path: Path) -> None:
    """A runner keeps files outside the project: a folder with a fixed name blocked the second job."""
    (job,) = (job for job in gitlab_jobs().values() if "worktree" in str(job["before_script"]))
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    (project / "of-the-target").write_text("")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "target")
    lines = [line for line in job["before_script"] if "make" not in line]
    lines += [job["script"][0], "ls", "pwd"]
    places = [
        subprocess.run(
            ["bash", "-ec", "\n".join(lines)],
            cwd=project,
            env={**os.environ, "CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD"},
            capture_output=True, text=True, check=True,
        ).stdout.split()[-2:]
        for _ in range(2)
    ]  # fmt: skip
    assert [words[0] for words in places] == ["of-the-target"] * 2
    assert places[0][1] != places[1][1]


def test_gitlab_quotes_every_variable_in_a_command() -> None:
    for job in gitlab_jobs().values():
        for line in [*job["before_script"], *job["script"]]:
            assert not re.search(r'(?<!["/\w])\$\w+', re.sub(r'"[^"]*"', "", line)), line


def every_command() -> Iterator[list[str]]:
    lines = [line for path in GITHUB for line in commands(path)]
    lines += [line for job in gitlab_jobs().values() for line in job["script"]]
    for line in lines:
        words = shlex.split(line)
        if "-m" in words:
            yield words[words.index("-m") + 1 :]


def test_every_command_is_understood_by_its_program() -> None:
    known = {"sitectl": COMMAND_LINE, "ci.offline": offline.command, "ci.previews": previews.command}
    known["ci.evidence"] = evidence.command
    seen = set()
    for program, *words in every_command():
        seen.add(program)
        numbers = ["7" if word in ("$NUMBER", "$CI_MERGE_REQUEST_IID") else word for word in words]
        assert refusal(known[program], numbers) == "", words
    assert seen == set(known)
