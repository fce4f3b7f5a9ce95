"""A term of the proof that is spoiled turns a test red: otherwise its figure is held by none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.program_folders import PRODUCT
from tests.unit.proof.mutations import MUTATIONS, Mutation

pytestmark = pytest.mark.row("opening 1", "opening 2")

_MARKS = "not exhaustive and not second_source"
ROOT = Path(__file__).parents[3]
PROGRAM = (*PRODUCT, "benchmarks", "docs", "lab")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program and the tests of the proof, to be spoiled."""
    folder = tmp_path_factory.mktemp("spoiled") / "project"
    ignored = shutil.ignore_patterns("__pycache__", "lab", "results")
    for name in (*PROGRAM, "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored if name == "tests" else None)
    for path in (*ROOT.glob("Pulumi*.yaml"), ROOT / "pyproject.toml"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture
def spoiled(copy: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    mutation: Mutation = request.param
    module = copy / "stacks" / "proof" / f"{mutation.module}.py"
    text = module.read_text()
    module.write_text(text.replace(mutation.old, mutation.new))
    yield copy
    module.write_text(text)


def _run(folder: Path, tests: tuple[str, ...], marks: str = _MARKS) -> subprocess.CompletedProcess[str]:
    files = [str(folder / "tests" / "unit" / "proof" / name) for name in tests]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "-m", marks, *files],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.exhaustive
def test_the_tests_pass_unspoiled(copy: Path) -> None:
    done = _run(copy, tuple(sorted({name for mutation in MUTATIONS for name in mutation.tests})))
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.words)
def test_the_text_is_there_once(mutation: Mutation) -> None:
    """Otherwise nothing is spoiled, or more than is said."""
    assert (ROOT / "stacks" / "proof" / f"{mutation.module}.py").read_text().count(mutation.old) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("spoiled", "mutation"),
    [(mutation, mutation) for mutation in MUTATIONS],
    ids=[mutation.words for mutation in MUTATIONS],
    indirect=["spoiled"],
)
def test_a_spoiled_term_turns_a_test_red(spoiled: Path, mutation: Mutation) -> None:
    done = _run(spoiled, mutation.tests)
    if done.returncode == 0:
        # Longer tests, which are none of CI's, are tried where no other notices.
        done = _run(spoiled, mutation.tests, "exhaustive")
    assert done.returncode == 1, (
        f"{mutation.words}: no test of {', '.join(mutation.tests)} noticed\n{done.stdout[-500:]}"
    )
