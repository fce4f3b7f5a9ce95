"""Pages, messages and docstrings keep to the words of docs/style.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import documented
from tests.program_folders import PRODUCT

pytestmark = pytest.mark.row("C.05")

ROOT = Path(__file__).parents[3]
PACKAGES = (*PRODUCT, "lab", "benchmarks")
# Their comments and messages are read as pages are. Not templates: a word of theirs is in objects of existing sites.
TEXTS = [
    *(ROOT / name for name in ("Makefile", "Pulumi.yaml", "bin/sitectl", "benchmarks/README.md")),
    *sorted(ROOT.glob("Pulumi.*.yaml")),
    *(path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.y*ml"))),
]
# The right column of the page's table, as far as a word has no other use.
AVOIDED = re.compile(
    r"\b(says?|said|saying|tells?|told|telling|mend(s|ed|ing)?|anew|afresh|whoever|nobody|somebody|stands)\b",
    re.IGNORECASE,
)
STYLE = ROOT / "docs" / "style.md"


def avoided(text: str) -> list[str]:
    """Lines with a word that the page replaces."""
    return [line.strip() for line in text.splitlines() if AVOIDED.search(line)]


def sentences(source: str) -> Iterator[str]:
    """Docstrings, messages, help and comments of a file; a single word is a name."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.value


def test_pages_and_other_files_keep_to_the_words() -> None:
    files = [*(page for page in documented.PAGES if page != STYLE), *TEXTS]
    lines = {documented.shown(path): avoided(path.read_text()) for path in files}
    assert {path: words for path, words in lines.items() if words} == {}


def test_messages_docstrings_and_comments_keep_to_the_words() -> None:
    sources = {path: path.read_text() for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
    # Most files have none of the words anywhere, and are not parsed.
    suspects = {documented.shown(path): source for path, source in sources.items() if avoided(source)}
    lines = {path: [line for text in sentences(source) for line in avoided(text)] for path, source in suspects.items()}
    assert {path: words for path, words in lines.items() if words} == {}


def test_the_words_are_those_of_the_page() -> None:
    (table,) = re.findall(r"\| use \| instead of \|\n\|---\|---\|\n((?:\|.*\n)+)", STYLE.read_text())
    named = {word for row in table.splitlines() for word in re.findall(r"\w+", row.rsplit("|", 2)[1])}
    assert {"say", "tell", "said", "mend", "anew", "afresh", "whoever", "nobody", "somebody", "stands"} <= named


@pytest.mark.parametrize(
    "source",
    [
        "x = 1  # as it says",
        '"""Says so."""',
        'raise ValueError("nobody asked")',
        'x = f"{y} tells why"',
        '"""One.\n\nAnd told again."""',
    ],
)
def test_a_word_is_seen_in_comment_docstring_message_and_f_string(source: str) -> None:
    assert [line for text in sentences(source) for line in avoided(text)]
