"""The program of another revision for a lab test; where it is not in the history, one line says what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.lab.site.project_copies import NoRevisionError, commit_of, project_at
from tests.unit.sitectl.sites_to_work_on import git


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two commits of a program."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    for text in ("earlier", "now"):
        (folder / "__main__.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", text)
    return folder


def earlier(checkout: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD~1"], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_program_is_the_revisions_and_packages_and_tools_are_the_checkouts(checkout: Path) -> None:
    with project_at(earlier(checkout), checkout) as project:
        assert (project / "__main__.py").read_text() == "earlier"
        assert {(project / name).readlink() for name in (".venv", ".lab")} == {checkout / ".venv", checkout / ".lab"}
    assert not project.exists()
    assert (checkout / "__main__.py").read_text() == "now"


def test_a_shallow_clone_names_the_fix_and_the_fix_works(checkout: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth=1", checkout.as_uri(), str(clone))
    revision = earlier(checkout)
    with pytest.raises(NoRevisionError) as caught, project_at(revision, clone):
        pass
    assert str(caught.value) == f"{revision} is not in the history of {clone}; fix: git fetch --unshallow"
    git(clone, "fetch", "-q", "--unshallow")
    with project_at(revision, clone) as project:
        assert (project / "__main__.py").read_text() == "earlier"


def test_a_tree_is_found_in_a_history_with_other_commits(checkout: Path) -> None:
    tree = subprocess.run(
        ["git", "rev-parse", "HEAD~1^{tree}"], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout.strip()
    before = earlier(checkout)
    git(checkout, "rebase", "-q", "--root", "--exec", "git commit -q --amend -m other")
    with project_at(commit_of(tree, checkout), checkout) as project:
        assert (project / "__main__.py").read_text() == "earlier"
    assert commit_of(tree, checkout) != before
    with pytest.raises(NoRevisionError, match=r"fix: name a commit that git log shows$"):
        commit_of("0" * 40, checkout)


@pytest.mark.parametrize("revision", ["0" * 40, "v0.0.0"])
def test_another_history_needs_another_revision(checkout: Path, revision: str) -> None:
    with (
        pytest.raises(NoRevisionError, match=r"fix: name a commit that git log shows$"),
        project_at(revision, checkout),
    ):
        pass


def test_a_copy_without_history_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoRevisionError, match="fix: clone the repository") as caught, project_at("main", tmp_path):
        pass
    assert "\n" not in str(caught.value)
