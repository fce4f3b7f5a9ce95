"""docs/emulation.md: each emulated behaviour names what it was read from and the test that holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulation import ASSUMED, MOST_ASSUMED, PAGE, ROOT, digest_of, functions, problems, rows, written

pytestmark = pytest.mark.row("opening 30")


def test_every_behaviour_has_a_test_that_exists() -> None:
    wrong = []
    for row in rows(PAGE.read_text()):
        wrong += [] if row.tests else [f"{row.behaviour}: no test"]
        for path, name in row.tests:
            if not (ROOT / path).is_file() or name not in functions(ROOT / path):
                wrong.append(f"{row.behaviour}: no {name} in {path}")
    assert wrong == []


def test_few_behaviours_are_assumed() -> None:
    listed = rows(PAGE.read_text())
    assumed = [row.behaviour for row in listed if not row.citations]
    assert len(assumed) <= MOST_ASSUMED * len(listed), assumed


def test_lines_that_changed_or_are_gone_are_reported(tmp_path: Path) -> None:
    source = tmp_path / "owner" / "name" / "pkg" / "file.go"
    source.parent.mkdir(parents=True)
    source.write_text("one\ntwo\nthree\n")
    tests = "[test_x](../tests/test_x.py)"
    right, stale, beyond, elsewhere = (
        f"| {what} | `{repository}@v1 pkg/file.go:{first}-{last} {digest}` | {tests} |"
        for what, repository, first, last, digest in (
            ("right", "owner/name", 2, 3, digest_of("two\nthree")),
            ("stale", "owner/name", 1, 1, digest_of("two")),
            ("beyond", "owner/name", 3, 4, digest_of("three")),
            ("elsewhere", "owner/other", 1, 1, digest_of("one")),
        )
    )
    page = "\n".join([right, stale, beyond, elsewhere, f"| a guess | {ASSUMED} | {tests} |"])
    assert list(problems(rows(page), tmp_path)) == [
        f"stale: pkg/file.go:1-1 has digest {digest_of('one')}",
        "beyond: pkg/file.go has 3 lines, not 3 to 4",
    ]
    assert digest_of("one") in written("\n".join([right, stale]), tmp_path)
    with pytest.raises(ValueError, match="neither a source"):
        rows(f"| no source | I think so | {tests} |")
