"""The how-to pages of GPUs and tenants do what they say, with the blocks and commands that they show."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.facts.hardware import Gpu
from tests import documented
from tests.unit.sitectl.sites_to_work_on import COMMAND, PROGRAM, ROOT, git, make_checkout, run

pytestmark = pytest.mark.processes

PAGES = ROOT / "docs" / "how-to"
SITE = "inference-platform:site"


def block(page: Path, language: str) -> str:
    """The first block of this language."""
    return next(content for named, content in documented.fences(page) if named == language)


def shown(page: Path, module: str) -> list[list[str]]:
    """The arguments of each command in the page's text blocks that this module runs."""
    lines = [line for named, content in documented.fences(page) if named == "text" for line in content.splitlines()]
    return [shlex.split(line)[3:] for line in lines if line.strip().startswith(f"python -m {module} ")]


@pytest.mark.row("001.08")
def test_the_page_on_gpus_adds_one(tmp_path: Path) -> None:
    """In a program of its own, because the table belongs to the code that reads it."""
    page = PAGES / "add-a-gpu.md"
    own = make_checkout(tmp_path / "own", sites=(), copied=PROGRAM)
    for package in COMMAND:
        shutil.copytree(ROOT / package, own / package, ignore=shutil.ignore_patterns("__pycache__"))
    named = re.search(r"`stacks/facts/hardware/([a-z0-9-]+)\.yaml`", page.read_text())
    assert named
    (own / "stacks" / "facts" / "hardware" / f"{named[1]}.yaml").write_text(block(page, "yaml"))

    def program(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=own, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    printed = {words[0]: program("sitectl", *words) for words in shown(page, "sitectl")}
    assert set(printed) == {"catalogue", "init", "proof"}
    assert re.search(rf"^  {named[1]} +1 GPU \(TP1\)", printed["catalogue"], re.MULTILINE)
    assert f"on {named[1]}, 2 x TP1 = 2 GPUs" in printed["proof"]
    assert "calibrated" not in printed["proof"]
    program("stacks.site.reference")
    for file in ("configuration.md", "site.schema.json"):
        assert named[1] in (own / "docs" / file).read_text(), "make docs"


def test_the_page_on_gpus_explains_every_key() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \| \S", (PAGES / "add-a-gpu.md").read_text(), re.MULTILINE)
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == set(Gpu.model_fields)


def berlin(folder: Path, tenant: str) -> tuple[Path, Path, Any]:
    """A project with a small site of this tenant: its folder, the site's file and what that holds."""
    own = make_checkout(folder / "own", sites=(), copied=PROGRAM)
    assert run(own, "init", "berlin", "--model", "qwen3-32b=qwen3-32b-fp8", "--tenant", tenant).status == 0
    file = own / "Pulumi.berlin.yaml"
    return own, file, yaml.safe_load(file.read_text())


def commit_all(own: Path) -> None:
    git(own, "init", "-q")
    git(own, "add", "-A")
    git(own, "commit", "-qm", "a site")


@pytest.mark.row("004.03")
def test_the_page_on_limits_shows_what_a_limit_is(tmp_path: Path) -> None:
    page = PAGES / "limit-tenants.md"
    own, file, document = berlin(tmp_path, "archive")
    added = yaml.safe_load(block(page, "yaml"))
    document["config"][SITE]["plans"] = added["plans"]
    document["config"][SITE]["tenants"]["archive"]["plan"] = "team"
    file.write_text(yaml.safe_dump(document))
    commit_all(own)
    document["config"][SITE]["tenants"]["archive"] |= added["tenants"]["archive"]
    file.write_text(yaml.safe_dump(document))
    for words in shown(page, "sitectl"):
        result = run(own, *words)
        assert result.status == 0, result.err
    assert "tenant archive: tokens_per_minute 200000 -> 500000" in result.out


def test_the_page_on_tenants_shows_what_a_tenant_is(tmp_path: Path) -> None:
    page = PAGES / "add-a-tenant.md"
    own, file, document = berlin(tmp_path, "search")
    added = yaml.safe_load(block(page, "yaml"))
    tenant = added["tenants"].pop("archive")
    document["config"][SITE]["tiers"] = added["tiers"]
    document["config"][SITE]["tenants"]["search"]["tier"] = "batch"
    file.write_text(yaml.safe_dump(document))
    commit_all(own)
    document["config"][SITE]["tenants"]["archive"] = tenant
    file.write_text(yaml.safe_dump(document))
    for words in shown(page, "sitectl"):
        result = run(own, *words)
        assert result.status == 0, result.err
    new = re.findall(r"^  added +(.+)$", result.out, re.MULTILINE)
    assert sorted(new) == [
        "Secret inference-gateway/keys-archive-3fc149483a",
        "command:local:Command access-archive-laptop",
        "command:local:Command access-archive-nightly",
    ]
    assert "tenant archive may call qwen3-32b" in result.out
    assert [title for title in ("IRREVERSIBLE", "REPLACED", "RESTARTS") if title in result.out] == []
    git(own, "commit", "-qam", "a tenant")
    del document["config"][SITE]["tenants"]["archive"]
    file.write_text(yaml.safe_dump(document))
    gone = run(own, "diff", "HEAD", "--site", "berlin").out
    assert "IRREVERSIBLE" in gone
    assert "forgets the key" in gone
