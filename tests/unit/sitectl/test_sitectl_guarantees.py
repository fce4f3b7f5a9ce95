"""A guarantee that is cut is in no object of a site: plan and diff name it with the tenants that have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import previews
from sitectl.shell.errors import Exit
from stacks.site.loader import KEY
from tests.unit.sitectl.sites_to_work_on import git, make_checkout, run, stand_in_pulumi
from tests.unit.sitectl.test_sitectl_headroom import words

pytestmark = pytest.mark.row("opening 16", "opening 3")


def write(folder: Path, tokens: int, own: dict[str, int] | None) -> None:
    """Two tenants of a plan with this guarantee, one of them with a guarantee of its own."""
    site: dict[str, Any] = words(1.0)
    site["plans"] = {"team": {"guaranteed_tokens_per_minute": tokens}}
    tenant = {"models": ["chat"], "keys": {"a": {}}, "plan": "team"}
    site["tenants"] = {"acme": tenant, "docs": {**tenant, "limits": own}}
    (folder / "Pulumi.berlin.yaml").write_text(yaml.safe_dump({"config": {KEY: site}}))


@pytest.fixture
def berlin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout under git whose site guarantees less than its last commit; `pulumi` prints a recording."""
    folder = make_checkout(tmp_path / "own", sites=())
    git(folder, "init", "-q", "-b", "main")
    write(folder, 9000, {"guaranteed_tokens_per_minute": 50})
    git(folder, "add", "Pulumi.berlin.yaml")
    git(folder, "commit", "-qm", "more")
    write(folder, 6000, None)
    stand_in_pulumi(tmp_path, "replica-added", monkeypatch)
    return folder


def test_a_plan_names_tenants_that_are_guaranteed_less(berlin: Path, tmp_path: Path) -> None:
    """In text, as data, in CI, and out of a saved preview."""
    saved, out = tmp_path / "saved.json", tmp_path / "out"
    result = run(berlin, "plan", "berlin", "--save", str(saved))
    assert result.status == Exit.OK, result.err
    assert "tenant acme: guaranteed_tokens_per_minute 9000 -> 6000" in result.out
    assert "limits: of tokens, for no tenant" in result.out
    again = run(berlin, "plan", "berlin", "--from", str(saved), "--json").data
    rows = {row["what"]: row for row in again["rows"] if row["resource"].startswith("guarantee ")}
    assert rows.keys() == {
        "tenant acme: guaranteed_tokens_per_minute 9000 -> 6000",
        "tenant docs: guaranteed_tokens_per_minute 50 -> 6000",
    }
    assert {(row["severity"], *row["tenants"]) for row in rows.values()} == {("live", "acme"), ("live", "docs")}
    assert previews.main(["--project", str(berlin), "--out", str(out), "--base", "HEAD"], {}) == Exit.OK
    assert json.loads((out / "berlin.json").read_text())["guarantees"] == [["acme", 9000, 6000], ["docs", 50, 6000]]
