"""The names of live checks: each ends with the rows of its mark, and is selected by them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from tests.live.evidence import check_of, in_brackets
from tests.requirements import ROOT, marked

pytestmark = pytest.mark.row("opening 5")

LIVE = "tests/live/"


def rows_by_check() -> Mapping[str, Sequence[str]]:
    """Check, as `path::function` -> the rows that its mark names."""
    by_check: dict[str, list[str]] = {}
    for row, tests in marked().items():
        for test in tests:
            if test.startswith(LIVE):
                by_check.setdefault(test, []).append(row)
    return by_check


def collected(*words: str) -> list[str]:
    """Names of the tests that pytest collects."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-n0", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(LIVE)]


@pytest.mark.exhaustive
@pytest.mark.processes
def test_each_check_ends_with_its_rows_and_is_selected_by_them() -> None:
    names, rows = collected(LIVE), rows_by_check()
    assert {name.partition("[")[0] for name in names} == rows.keys()
    endings = {name: name.removesuffix("]").rpartition("[")[2].split(",") for name in names}
    # The first follows the test's own parameter.
    wrong = [name for name, ending in endings.items() if len(ending) != len(rows[name.partition("[")[0]])]
    wrong += [name for name in names for row in rows[name.partition("[")[0]] if in_brackets([row]) not in name]
    assert wrong == []
    for row in (min(marked_by_checks()), max(marked_by_checks())):
        wanted = [name for name in names if row in rows[name.partition("[")[0]]]
        assert collected(LIVE, "-k", in_brackets([row])) == wanted
    # As it is shown, and so pasted.
    assert collected(names[0]) == names[:1]


def marked_by_checks() -> set[str]:
    return {row for rows in rows_by_check().values() for row in rows}


@pytest.mark.parametrize(
    ("test", "rows", "check"),
    [
        ("test_a_site_s_check[a,b]", ["a", "b"], "a site s check"),
        ("test_a_check[a_part-a,opening-b]", ["a", "opening b"], "a check[a part]"),
        ("test_a_check[a_part]", [], "a check[a part]"),
        ("test_a_check", [], "a check"),
    ],
)
def test_a_check_is_named_without_its_rows_too(test: str, rows: list[str], check: str) -> None:
    assert check_of(test, rows) == check
