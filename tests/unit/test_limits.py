"""Tests give the product other time-outs and limits by its own arguments; no user can patch a constant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# The unit is in the name of every limit.
LIMIT = re.compile(r"(?:\w*_)?(?:s|ms|kib|mib|bytes|tokens|attempts|retries|replicas|limit)", re.IGNORECASE)
PATCHED = re.compile(r"^\s*[\w.]+\.(_[A-Z][A-Z_]+) *=[^=]", re.MULTILINE)


def patched(source: str) -> Iterator[str]:
    """Limits that `setattr` and `patch.object` set, and private constants that programs in strings do."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from PATCHED.findall(node.value)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in ("setattr", "object", "patch") or not node.args:
            continue
        # `setattr(module, "NAME", value)`, and `setattr("module.NAME", value)`.
        for argument in node.args[:2]:
            name = argument.value if isinstance(argument, ast.Constant) else ""
            if isinstance(name, str) and LIMIT.fullmatch(name.rpartition(".")[2]):
                yield name


def test_no_test_patches_a_limit_of_the_product() -> None:
    by_file = {path.relative_to(TESTS): list(patched(path.read_text())) for path in sorted(TESTS.rglob("*.py"))}
    assert {path: names for path, names in by_file.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        'monkeypatch.setattr(waiting, "POLL_S", 0.1)',
        'monkeypatch.setattr("bundle.asking.LIMIT_S", 0.1)',
        'mock.patch.object(client, "_pause_s", lambda _: 0)',
        "PROGRAM = 'import a.b as module\\nmodule._PATIENCE_S = 599\\n'",
    ],
)
def test_a_patched_limit_is_seen(source: str) -> None:
    assert len(list(patched(source))) == 1
