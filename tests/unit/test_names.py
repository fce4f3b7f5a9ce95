"""Names mean one thing: no placeholder in the place of a variable's name, and no class name twice."""

from __future__ import annotations

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.program_folders import PRODUCT

ROOT = Path(__file__).parents[2]
# They hold anything, so they name nothing: `problem` instead of `one`, `match` instead of `found`.
PLACEHOLDERS = {"each", "found", "one", "said", "told"}
# Files and folders without placeholders: all of ours.
CLEAN = ("__main__.py", *PRODUCT, "benchmarks", "lab", "tests")
# Class name -> why several may have it.
SHARED = {
    "Cluster": "a section of Talos's machine config is called so, and the component's type is in every site's state",
    "Command": "a command's form, in `python -m sitectl` and in `python -m talos`, which imports floor alone",
    "Exit": "exit codes, of `python -m sitectl`, of `python -m talos` and of the Job that brings weights",
    "Machine": "a section of Talos's machine config is called so; else one that commands are run on",
    "Verdict": "what a config would do to a machine, and what a change does to a site: both judge before `up`",
}


def python_files(*places: str) -> Iterator[Path]:
    """Files at these places below the root."""
    for place in places:
        path = ROOT / place
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def given_names(source: str) -> Iterator[str]:
    """What a file names: variables, attributes, parameters, functions, classes and imports under another name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name) | ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name


def placeholders(source: str) -> set[str]:
    """The names of a file that are placeholders, private or not."""
    return {name for name in given_names(source) if name.strip("_") in PLACEHOLDERS}


def test_no_file_is_left_out() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {Path(file).parts[0] for file in listed.splitlines()} <= set(CLEAN)


@pytest.mark.parametrize("place", CLEAN)
def test_names_say_what_they_hold(place: str) -> None:
    by_file = {str(path.relative_to(ROOT)): placeholders(path.read_text()) for path in python_files(place)}
    assert {file: names for file, names in by_file.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "for each in range(3): pass",
        "texts = [found for found in ()]",
        "if said := 1: pass",
        "lambda one: one",
        "def _found(): pass",
        "async def one(): pass",
        "def say(*, said): pass",
        "class Problem:\n    found: str = ''",
        "self.found = 1",
        "import one.two as one",
        "try: pass\nexcept OSError as found: pass",
        "match 1:\n    case [one, *rest]: pass",
        "match 1:\n    case {'a': 1, **found}: pass",
    ],
)
def test_a_placeholder_is_seen_wherever_a_name_is_given(source: str) -> None:
    assert placeholders(source)


def test_words_that_only_hold_a_placeholder_are_names() -> None:
    assert placeholders("one_node = error.not_found or fields(each)") == set()


def shared_classes(*places: str) -> dict[str, list[str]]:
    """Class name -> files, where several have one of that name."""
    files: dict[str, set[str]] = defaultdict(set)
    for path in python_files(*places):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(str(path.relative_to(ROOT)))
    return {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}


def test_no_two_classes_of_the_product_share_a_name() -> None:
    shared = shared_classes(*PRODUCT)
    assert {name: paths for name, paths in shared.items() if name not in SHARED} == {}
    assert set(SHARED) <= set(shared), "a row of SHARED that no class needs any more"


def test_no_two_classes_of_the_lab_share_a_name() -> None:
    """But for private ones, which no other file names."""
    assert {name: paths for name, paths in shared_classes("lab").items() if not name.startswith("_")} == {}
