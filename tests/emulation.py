"""`python -m tests.emulation --sources DIR`: compares docs/emulation.md with the sources that its rows were read from.

A row cites `OWNER/NAME@TAG path:FIRST-LAST sha256`, the first eight digits of the digest of those lines. DIR holds each
repository as OWNER/NAME: a clone with the tag, or a folder with the files of that tag. A row whose source is not there
is left out, and counted. `--write` puts the digests of all that are there into the page.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "emulation.md"
ASSUMED = "assumed"
MOST_ASSUMED = 0.2
"""Share of the rows that may have no source."""
_CITATION = re.compile(
    r"`(?P<repository>[\w.-]+/[\w.-]+)@(?P<tag>[\w.-]+) (?P<path>[\w./-]+):(?P<first>\d+)-(?P<last>\d+) "
    r"(?P<digest>[0-9a-f]{8})`"
)
_TEST = re.compile(r"\[(?P<name>test_\w+)\]\(\.\./(?P<path>tests/[\w./-]+\.py)\)")


@dataclass(frozen=True, kw_only=True)
class Citation:
    """Lines of an upstream file at a tag."""

    repository: str
    tag: str
    path: str
    first: int
    last: int
    digest: str
    """First eight hexadecimal digits of the lines' sha256."""

    def read(self, sources: Path) -> str | None:
        """Those lines; None where the repository is not among the sources. ValueError where they do not exist."""
        place = sources / self.repository
        if not place.exists():
            return None
        if (place / "objects").is_dir() or (place / ".git").exists():
            shown = subprocess.run(
                ["git", "-C", str(place), "show", f"{self.tag}:{self.path}"],
                capture_output=True,
                text=True,
                check=False,
            )
            if shown.returncode:
                raise ValueError(f"{self.repository} has no {self.path} at {self.tag}")
            text = shown.stdout
        elif (place / self.path).is_file():
            text = (place / self.path).read_text()
        else:
            raise ValueError(f"{self.repository} has no {self.path}")
        lines = text.splitlines()
        if not 1 <= self.first <= self.last <= len(lines):
            raise ValueError(f"{self.path} has {len(lines)} lines, not {self.first} to {self.last}")
        return "\n".join(lines[self.first - 1 : self.last])


@dataclass(frozen=True, kw_only=True)
class Row:
    """One emulated behaviour."""

    part: str
    behaviour: str
    citations: tuple[Citation, ...]
    """None where the behaviour is assumed."""
    tests: tuple[tuple[str, str], ...]
    """(path, function) that hold it."""


def digest_of(text: str) -> str:
    """As a citation has it."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def rows(page: str) -> list[Row]:
    """Of the page, in its order. ValueError for a row with neither a source nor the word for none."""
    matching, part = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            part = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("| ") else []
        if len(cells) != 3 or cells[0] == "what is emulated":
            continue
        behaviour, source, tests = cells
        citations = tuple(_citation(match) for match in _CITATION.finditer(source))
        if bool(citations) == (source == ASSUMED):
            raise ValueError(f"{behaviour}: neither a source nor {ASSUMED}: {source}")
        held = tuple((match["path"], match["name"]) for match in _TEST.finditer(tests))
        matching.append(Row(part=part, behaviour=behaviour, citations=citations, tests=held))
    return matching


def _citation(match: re.Match[str]) -> Citation:
    return Citation(
        repository=match["repository"],
        tag=match["tag"],
        path=match["path"],
        first=int(match["first"]),
        last=int(match["last"]),
        digest=match["digest"],
    )


def problems(listed: Sequence[Row], sources: Path) -> Iterator[str]:
    """Citations that differ from a source that is there."""
    for row in listed:
        for citation in row.citations:
            try:
                text = citation.read(sources)
            except ValueError as error:
                yield f"{row.behaviour}: {error}"
                continue
            if text is not None and digest_of(text) != citation.digest:
                yield f"{row.behaviour}: {citation.path}:{citation.first}-{citation.last} has digest {digest_of(text)}"


def written(page: str, sources: Path) -> str:
    """The page with the digests of all sources that are there."""

    def current(match: re.Match[str]) -> str:
        text = _citation(match).read(sources)
        return match[0] if text is None else match[0].replace(match["digest"], digest_of(text))

    return _CITATION.sub(current, page)


def functions(path: Path) -> set[str]:
    """Names of the tests of a module."""
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def main() -> int:
    """Print what differs, and how much was compared; 1 where something does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=Path, required=True, help="folder with OWNER/NAME of each repository")
    parser.add_argument("--write", action="store_true", help="write the digests into the page")
    given = parser.parse_args()
    if given.write:
        PAGE.write_text(written(PAGE.read_text(), given.sources))
    listed = rows(PAGE.read_text())
    wrong = list(problems(listed, given.sources))
    there = sum((given.sources / citation.repository).exists() for row in listed for citation in row.citations)
    cited = sum(len(row.citations) for row in listed)
    assumed = [row.behaviour for row in listed if not row.citations]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{there} of {cited} citations compared; {len(assumed)} of {len(listed)} behaviours are assumed:")
    print(*(f"  {behaviour}" for behaviour in assumed), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
