"""The lists of files for a new part: an example that exists is in the files of its list, and nowhere else."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.row("C.03")

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "how-to"
LISTS = {
    "component": ("add-a-component.md", "Steps"),
    "key": ("extend-the-platform.md", "A key of a site"),
    "setting": ("extend-the-platform.md", "A setting of a model"),
    "rule": ("extend-the-platform.md", "A rule"),
    "addon": ("extend-the-platform.md", "An addon"),
    "addon-of-the-gateway": ("extend-the-platform.md", "An addon of the gateway"),
    "fault": ("extend-the-platform.md", "A fault of the lab"),
    "alert": ("extend-the-platform.md", "An alert"),
}
# Other programs write these: `make docs`, UPDATE_GOLDEN=1, Pulumi's engine. Fixtures of sites use keys as sites do.
WRITTEN = (
    "docs/alerts.md",
    "docs/configuration.md",
    "docs/site.schema.json",
    "docs/requirements.md",
    "tests/unit/golden",
    "tests/fixtures",
)
# What was decided and when stays as it was.
HISTORY = ("CHANGELOG.md", "docs/adr")
# Puts made-up parts beside the examples.
MADE_UP = "tests/unit/docs/test_made_up_parts.py"
LEFT_OUT = (*WRITTEN, *HISTORY, MADE_UP, *sorted({f"docs/how-to/{page}" for page, _ in LISTS.values()}))


@dataclass(frozen=True)
class FileList:
    """One list of a page."""

    search: str
    """The command that finds the example's files."""
    named: tuple[str, ...]
    """Files, and folders with a slash at the end, below the checkout."""

    def holds(self, file: str) -> bool:
        return any(file == path or (path.endswith("/") and file.startswith(path)) for path in self.named)


def file_list(kind: str) -> FileList:
    page, title = LISTS[kind]
    section = (PAGES / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    search = re.search(r"^git grep .+$", section, re.MULTILINE)
    assert search, f"{page}: {title}: no command that finds the example"
    steps = "\n".join(re.findall(r"^\d+\. .+(?:\n {3,4}\S.*)*", section, re.MULTILINE))
    # A path as the text of a link is a file of the list; other links are further reading.
    links = re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", steps)
    named = [text for text, target in links if (PAGES / target).resolve() == ROOT / text]
    return FileList(search[0], tuple(named))


def files_of_example(search: str) -> list[str]:
    """What the page's command finds, without what a person does not write."""
    command = [*shlex.split(search), "--", *(f":!{path}" for path in LEFT_OUT)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("kind", LISTS)
def test_an_example_is_only_where_its_page_says(kind: str) -> None:
    """Where it is somewhere else too, that is a second copy of a fact: remove it, or name the file in the list."""
    listed = file_list(kind)
    assert len(listed.named) >= 4
    assert [file for file in files_of_example(listed.search) if not listed.holds(file)] == []


@pytest.mark.parametrize("kind", LISTS)
def test_each_file_of_a_list_is_there_and_has_the_example(kind: str) -> None:
    """Of folders, only that they are there: not every example needs each of them."""
    listed = file_list(kind)
    hits = files_of_example(listed.search)
    for path in listed.named:
        assert (ROOT / path).is_dir() if path.endswith("/") else path in hits, path


@pytest.mark.parametrize("path", LEFT_OUT)
def test_what_is_left_out_of_the_search_is_there(path: str) -> None:
    assert (ROOT / path).exists()
