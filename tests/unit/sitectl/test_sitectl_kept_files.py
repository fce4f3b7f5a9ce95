"""A command that writes a file overwrites nothing but a file of the same kind, and keeps previews to their owner."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from tests.fixtures.previews import kept
from tests.unit.sitectl.sites_to_work_on import run

pytestmark = pytest.mark.row("opening 3", "C.06")

PREVIEW = kept.file("replica-cut")


@pytest.mark.parametrize("option", ["--markdown", "--save"])
def test_a_site_is_not_overwritten(checkout_folder: Path, option: str) -> None:
    site = checkout_folder / "Pulumi.prod.yaml"
    before = site.read_text()
    refused = run(checkout_folder, "plan", "prod", "--from", str(PREVIEW), option, str(site))
    assert refused.status == Exit.USAGE
    assert f"{option} would overwrite" in refused.err and "fix: name a file that does not exist" in refused.err
    assert site.read_text() == before


def test_markdown_goes_over_neither_the_preview_that_was_read_nor_the_one_that_is_saved(
    checkout_folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "p.json"
    copy.write_text(PREVIEW.read_text())
    assert run(checkout_folder, "plan", "lab", "--from", str(copy), "--markdown", str(copy)).status == Exit.USAGE
    assert copy.read_text() == PREVIEW.read_text()
    new = str(tmp_path / "new")
    both = run(checkout_folder, "plan", "lab", "--from", str(PREVIEW), "--markdown", new, "--save", new)
    assert both.status == Exit.USAGE and not Path(new).exists()


def test_files_of_the_same_kind_are_written_again(checkout_folder: Path, tmp_path: Path) -> None:
    saved, posted = tmp_path / "saved.json", tmp_path / "plan.md"
    for _ in range(2):
        words = ("plan", "lab", "--from", str(PREVIEW), "--save", str(saved), "--markdown", str(posted))
        assert run(checkout_folder, *words).status == Exit.OK
    assert posted.read_text() and saved.read_text()


def test_a_saved_preview_is_its_owners_alone(checkout_folder: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    before = os.umask(0o022)
    try:
        for _ in range(2):
            run(checkout_folder, "plan", "lab", "--from", str(PREVIEW), "--save", str(saved))
            assert stat.S_IMODE(saved.stat().st_mode) == 0o600
            # As an older release left it.
            saved.chmod(0o644)
    finally:
        os.umask(before)


@pytest.mark.parametrize(("command", "option"), [("diff", "--markdown"), ("comment", "--whole")])
def test_the_other_commands_look_first_as_well(checkout_folder: Path, command: str, option: str) -> None:
    site = checkout_folder / "Pulumi.prod.yaml"
    more = {"diff": ["HEAD"], "comment": [str(PREVIEW.parent), "--forge", "github", "--number", "1", "--dry-run"]}
    refused = run(checkout_folder, command, *more[command], option, str(site))
    assert refused.status == Exit.USAGE and f"{option} would overwrite" in refused.err
