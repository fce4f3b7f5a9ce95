"""What the pages show: their blocks, and their commands as arguments that a test runs.

A test that runs a page's command takes it from `argv` or `shell`, so it runs what is written there;
tests/unit/docs/test_docs_commands.py finds these calls and refuses a page with a command that no test runs.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Their commands `python -m ...` are run as they are, in this order, by test_the_pages_commands_run.
RUN_WHOLE = ("docs/sitectl.md", "docs/ci.md", "docs/how-to/review-a-change.md", "docs/how-to/waive-a-rule.md")


def fences(page: Path) -> Iterator[tuple[str, str]]:
    """(what follows the backticks, content) of each fenced block."""
    for match in re.finditer(r"^ *```([^\n]*)\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL):
        yield match[1].strip(), match[2]


def commands(page: Path, language: str = "sh") -> Iterator[str]:
    """The commands of a page's blocks of this language, without comments."""
    for named, content in fences(page):
        if named == language:
            for line in content.replace("\\\n", " ").splitlines():
                if command := re.sub(r"\s{2,}#.*|^#.*", "", line).strip():
                    yield command


def argv(command: str) -> list[str]:
    """The arguments of a command that a page shows. Raises ValueError for one that no page shows (any more)."""
    return shlex.split(shell(command))


def shell(command: str) -> str:
    """The same as the line that a shell reads."""
    if command not in _all_commands():
        raise ValueError(f"no `sh` block of README.md or docs/ has the line {command!r}; a test runs it")
    return command


def shown(page: Path) -> str:
    """A page as its readers name it."""
    return str(page.relative_to(ROOT))


@cache
def names_of_tests() -> frozenset[str]:
    """The functions of all test modules."""
    named: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        named |= {
            node.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    return frozenset(named)


@cache
def _all_commands() -> frozenset[str]:
    return frozenset(command for page in PAGES for command in commands(page))
