"""`upgrade-path`: from the versions of a revision to those that are pinned."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from stacks.facts import versions
from tests.unit.sitectl.sites_to_work_on import git, make_checkout, run

pytestmark = pytest.mark.row("opening 7")


def test_the_upgrade_path_goes_from_a_revision_to_what_is_pinned(tmp_path: Path) -> None:
    """What ran is in git; each step has its versions, what it needs, and how far it goes back."""
    own = make_checkout(tmp_path / "own", sites=("prod",))
    # The one file of the program that git has to know; the others are links.
    (own / "stacks").unlink()
    file = own / "stacks" / "facts" / "versions.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(versions.FILE.read_text())
    git(own, "init", "-q", "-b", "main")
    git(own, "add", "-A")
    git(own, "commit", "-qm", "now")
    assert run(own, "upgrade-path", "prod").out.strip() == (
        "prod: no step: the versions of HEAD are those that are pinned now"
    )
    pinned = versions.load()
    text = file.read_text().replace(f"version: {pinned.cilium.version}", "version: 1.19.4")
    file.write_text(text.replace(":v0.32.0", ":v0.31.0"))
    git(own, "commit", "-qam", "before")
    git(own, "tag", "before")
    result = run(own, "upgrade-path", "prod", "--from", "before")
    assert result.status == Exit.OK, result.err
    assert "prod: 2 steps from before to the versions that are pinned now" in result.out
    assert f"cilium.version: 1.19.4 -> {pinned.cilium.version}" in result.out
    steps = run(own, "upgrade-path", "prod", "--json").data["steps"]
    assert [step["parts"] for step in steps] == [["Cilium"], ["vLLM"]]
    assert steps[1]["way_back"] == ["vLLM: set 0.31.0 again and run `pulumi up`"]

    file.write_text(file.read_text().replace("version: 1.19.4", "version: 1.17.9"))
    git(own, "commit", "-qam", "older")
    refused = run(own, "upgrade-path", "prod")
    assert refused.status == Exit.REFUSED
    assert "stacks/facts/versions.yaml: 1 error in the file" in refused.err
    assert "allowed: one minor version at a time" in refused.err
    assert "go to the newest v1.18 first" in refused.err
    git(own, "rm", "-q", "--cached", str(file))
    git(own, "commit", "-qm", "gone")
    assert "is not in HEAD" in run(own, "upgrade-path", "prod").err
