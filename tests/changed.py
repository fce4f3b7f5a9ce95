"""`python -m tests.changed [--list] [BASE]`: fast tests that changes since BASE can touch, and folders of the lab tier.

BASE is where the branch left main, unless it is named.

A test module is chosen when a changed file is among what it reads: itself, its conftest files, and everything that
these import or start, directly or not. A data file next to modules counts as all of them. What no rule knows chooses
every test.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath

import click

from floor import command_line

ROOT = Path(__file__).parents[1]
# They read the whole project as text, and take seconds.
ALWAYS = ("tests/unit/test_imports.py", "tests/unit/docs/")
# Changed files that only these tests read, in addition to ALWAYS; the first match counts.
READERS: Mapping[str, tuple[str, ...]] = {
    "docs/": ("tests/unit/ci/", "tests/unit/sitectl/"),
    "README.md": tuple(f"tests/unit/sitectl/test_sitectl_{name}.py" for name in ("readme", "launcher", "pages")),
    "CHANGELOG.md": (),
    "CONTRIBUTING.md": (),
    "SECURITY.md": (),
    "Makefile": (),
    "tools/": ("tests/unit/install/", "tests/unit/lab/", "tests/unit/machines/"),
    "ci/": ("tests/unit/ci/",),
    "tests/fixtures/previews/": ("tests/unit/sitectl/", "tests/unit/ci/"),
    "tests/fixtures/sites/": ("tests/unit/stacks/", "tests/unit/spine/", "tests/unit/proof/"),
    "tests/unit/golden/": ("tests/unit/spine/", "tests/unit/proof/", "tests/unit/stacks/", "tests/unit/talos/"),
}
# Programs that are started by a path, which no import shows.
STARTS: Mapping[str, tuple[str, ...]] = {
    "sitectl/offline/checkout.py": ("sitectl/offline/mocked_program.py",),
    "sitectl/offline/mocked_program.py": ("__main__.py",),
    "tests/unit/rules/test_rules_policy_pack.py": ("policy/__main__.py",),
    "tests/unit/rules/test_rules_program.py": ("__main__.py",),
    "tests/unit/plugin_kubernetes/test_kubernetes_program.py": ("lab/plugins/kubernetes/__main__.py",),
    # The lab's engine runs the program and its plugins.
    "tests/lab/site/conftest.py": (
        "__main__.py",
        "lab/plugins/kubernetes/__main__.py",
        "lab/plugins/command/__main__.py",
    ),
    "tests/lab/cluster_program/conftest.py": ("__main__.py", "lab/plugins/kubernetes/__main__.py"),
    "tests/lab/plugin_kubernetes/conftest.py": ("lab/plugins/kubernetes/__main__.py",),
    "tests/lab/test_plugin_command.py": ("lab/plugins/command/__main__.py",),
    "tests/lab/test_controllers_by_chart.py": ("__main__.py", "lab/plugins/kubernetes/__main__.py"),
    "tests/lab/test_rules_on_the_engine.py": ("__main__.py",),
}
# `module:name`, by which a group of commands names one of them.
_PLACE = re.compile(r"([a-z_.]+):[a-z_]+")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Test modules of the unit tier, and folders (or single modules) of the lab tier."""

    unit: tuple[str, ...]
    lab: tuple[str, ...]
    because: str = ""
    """A changed file that no rule knows, for which everything is chosen."""


def selection(changed: Iterable[str], sources: Mapping[str, str]) -> Selection:
    """The tests that `changed` can touch. sources: the text of every Python file, by its path in the project."""
    tests = sorted(path for path in sources if path.startswith("tests/") and PurePosixPath(path).name[:5] == "test_")
    graph = {path: _read_by(path, sources) for path in sources}
    reads = {test: _all_that_is_read(test, graph) for test in tests}
    chosen: set[str] = set()
    for file in changed:
        touched = _touched(file, tests, reads, sources)
        if touched is None:
            return Selection(
                unit=tuple(test for test in tests if test.startswith("tests/unit/")),
                lab=_lab_folders(tests),
                because=file,
            )
        chosen |= touched
        chosen |= {test for test in tests if test.startswith(ALWAYS)}
    return Selection(unit=tuple(sorted(t for t in chosen if t.startswith("tests/unit/"))), lab=_lab_folders(chosen))


def _touched(
    file: str, tests: Collection[str], reads: Mapping[str, set[str]], sources: Mapping[str, str]
) -> set[str] | None:
    """The tests that read this file; None if unknown."""
    if file in sources:
        return {test for test in tests if file in reads[test]}
    for start, readers in READERS.items():
        if file.startswith(start):
            return {test for test in tests if readers and test.startswith(readers)}
    if file.endswith(".py"):
        return None  # deleted: who imported it may do so by a way that is gone
    folder = PurePosixPath(file).parent
    while str(folder) != ".":
        beside = {path for path in sources if PurePosixPath(path).parent == folder}
        if beside:
            return {test for test in tests if beside & reads[test]}
        folder = folder.parent
    return None


def _all_that_is_read(test: str, graph: Mapping[str, set[str]]) -> set[str]:
    ahead = [test, *(f"{folder}/conftest.py" for folder in PurePosixPath(test).parents)]
    seen: set[str] = set()
    while ahead:
        path = ahead.pop()
        if path in graph and path not in seen:
            seen.add(path)
            ahead += graph[path]
    return seen


def _read_by(path: str, sources: Mapping[str, str]) -> set[str]:
    """Files that one file imports or starts, with the packages around them."""
    imported = {file for name in _named_modules(sources[path]) for file in _files_of(name, sources)}
    return imported | set(STARTS.get(path, ()))


@cache
def _named_modules(source: str) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
            case ast.Call(ast.Attribute(_, "import_module"), [ast.Constant(str(module)), *_]):
                names.add(module)
            case ast.Constant(str(text)) if place := _PLACE.fullmatch(text):
                names.add(place[1])
            case ast.List(words) | ast.Tuple(words):
                names |= {f"{module}.__main__" for module in _after_dash_m(words)} | set(_after_dash_m(words))
    return frozenset(names)


def _after_dash_m(words: list[ast.expr]) -> list[str]:
    """The modules that a command line runs: what follows a literal -m."""
    plain = [word.value if isinstance(word, ast.Constant) else None for word in words]
    return [str(after) for before, after in pairwise(plain) if before == "-m" and isinstance(after, str)]


def _files_of(name: str, sources: Mapping[str, str]) -> set[str]:
    """The file of a dotted module, and the __init__ of each package around it."""
    parts = name.split(".")
    stems = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    return {file for stem in stems for file in (f"{stem}.py", f"{stem}/__init__.py") if file in sources}


def _lab_folders(tests: Iterable[str]) -> tuple[str, ...]:
    below = [PurePosixPath(test) for test in tests if test.startswith("tests/lab/")]
    return tuple(sorted({str(path if path.parent.name == "lab" else path.parent) for path in below}))


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = done.stderr.strip() or "no commit in common, as in a shallow clone"
        sys.exit(f"error: git {' '.join(words)}: {why}\n  fix: make check BASE=<revision>")
    return done.stdout.splitlines()


def changed_files(base: str | None) -> list[str]:
    """What differs from `base`, or from where the branch left main, and what git does not have yet."""
    untracked = _git("ls-files", "--others", "--exclude-standard")
    return [*_git("diff", "--name-only", "--no-renames", base or _left_main(), "--"), *untracked]


def _left_main() -> str:
    """The last commit that the branch and main have in common; the current one in a checkout without main."""
    known = _git("for-each-ref", "--format=%(refname)", "refs/remotes/origin/main", "refs/heads/main")
    if not known:
        print("no main is here, so commits do not count: make check BASE=<revision>", file=sys.stderr)
    return min((_git("merge-base", "HEAD", ref)[0] for ref in known), key=_commits_since, default="HEAD")


def _commits_since(revision: str) -> int:
    return len(_git("rev-list", f"{revision}..HEAD"))


@click.command(cls=command_line.Command, help=__doc__)
@click.argument("base", required=False)
@click.option("--list", "lists", is_flag=True, help="print the tests and run nothing")
def command(*, base: str | None, lists: bool) -> int:
    changed = changed_files(base)
    files = _git("ls-files", "--cached", "--others", "--exclude-standard", "*.py")
    sources = {file: (ROOT / file).read_text() for file in files if (ROOT / file).is_file()}
    chosen = selection(changed, sources)
    if chosen.because:
        print(f"every test: no rule says who reads {chosen.because}")
    print(f"{len(changed)} changed files: {len(chosen.unit)} modules of the unit tier")
    for folder in chosen.lab:
        print(f"also concerned, on a lab: {folder}")
    if lists:
        print("\n".join(chosen.unit))
        return 0
    if not chosen.unit:
        print("make test-fast runs all fast tests")
        return 0
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "tests.forks", "--forks", "4"]
    # Status 5: all tests of these modules are left out of the fast tier.
    return 0 if (status := subprocess.call([*pytest, *chosen.unit], cwd=ROOT)) == 5 else status


def main(argv: list[str] | None = None) -> int:
    """Run the chosen unit tests, or list them; exit status of pytest."""
    return command_line.run(command, argv, name="python -m tests.changed")


if __name__ == "__main__":
    sys.exit(main())
