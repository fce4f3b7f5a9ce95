"""A checkout of the platform for tests of commands: the program's files, with sites of its own."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.model import Resource
from sitectl.offline import checkout
from sitectl.shell.cli import main
from sitectl.shell.progress import Progress
from stacks.facts.image_lock import FILE as IMAGE_LOCK
from stacks.site.loader import KEY
from tests.fixtures.previews import kept
from tests.program_folders import FOLDERS
from tests.unit.stacks.site_examples import text_without_accounts

ROOT = Path(__file__).parents[3]
PROGRAM = ("__main__.py", "Pulumi.yaml", *FOLDERS, "docs")
# What the command is made of beside the program.
COMMAND = ("sitectl", "bundle")


def make_checkout(
    folder: Path, *, sites: Sequence[str] = ("lab", "prod"), copied: Sequence[str] = (), accounts: bool = True
) -> Path:
    """The program and these sites of it in `folder`.

    accounts: whether prod has them, as it is checked in; without, it needs no database and no images of its own.

    copied: folders and files of it that git or a test may change, such as all of PROGRAM; the others are linked, which
    costs nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAM:
        source = ROOT / name
        if name not in copied:
            (folder / name).symlink_to(source)
        elif source.is_dir():
            # With what is compiled already, or each program that runs here compiles everything again.
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.pyc.*"))
        else:
            shutil.copy2(source, folder / name)
    if copied:
        shutil.copy(ROOT / ".gitignore", folder)
    for site in sites:
        shutil.copy(ROOT / f"Pulumi.{site}.yaml", folder)
    if not accounts:
        (folder / "Pulumi.prod.yaml").write_text(text_without_accounts())
    return folder


def edit(folder: Path, site: str, **values: Any) -> None:
    """Set keys at the top of a site."""
    file = folder / f"Pulumi.{site}.yaml"
    document = yaml.safe_load(file.read_text())
    document["config"][KEY].update(values)
    file.write_text(yaml.safe_dump(document))


def git(folder: Path, *arguments: str) -> None:
    """git with an identity of its own."""
    own = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


def recording(name: str, stack: str) -> str:
    """A recorded preview, as the engine gives it for this stack: all of them were recorded on lab."""
    return kept.text(name).replace("urn:pulumi:lab::", f"urn:pulumi:{stack}::")


def print_recording(name: str) -> str:
    """The line of a stand-in for `pulumi` that prints `recording` for the stack that it is asked for."""
    return f'stack="${{5:-lab}}"; sed "s/urn:pulumi:lab::/urn:pulumi:$stack::/g" {kept.file(name)}'


def stand_in_pulumi(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on `pulumi` prints `recording`."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "pulumi").write_text(f"#!/bin/sh\n{print_recording(name)}\n")
    (programs / "pulumi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")


really_declare = checkout.declare
_remembered: dict[tuple[str, str, str], checkout.Declared] = {}
_shared: list[Path] = []


def remembering(
    project: Path, files: Mapping[str, Path], progress: Progress | None = None
) -> dict[str, checkout.Declared]:
    """`checkout.declare`, once for each program and text of a site: a run costs seconds, and gives the same each time.

    That it does is `test_the_same_site_gives_the_same_bytes`, which asks `really_declare`.
    """
    program = _digest(project)
    # The program reads the project's locks too.
    lock_files = [project / IMAGE_LOCK, *sorted(project.glob("weights/*"))]
    locks = "".join(file.read_text() for file in lock_files if file.exists())
    keys = {name: (program, name, path.read_text() + locks) for name, path in files.items()}
    missing = {name: files[name] for name, key in keys.items() if not _is_remembered(key)}
    if missing:
        for name, rendered in really_declare(project, missing, progress).items():
            _remembered[keys[name]] = rendered
            _share(keys[name], rendered)
    return {name: _remembered[key] for name, key in keys.items()}


@pytest.fixture(autouse=True, scope="module")
def each_program_runs_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Renders of the same program and site are shared by the tests of a run, for those that import this.

    The processes of one run remember for each other: forks share a base folder, workers of xdist its parent.
    """
    base = tmp_path_factory.getbasetemp()
    _shared.append((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "renders")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkout, "declare", remembering)
        yield


def _file(key: tuple[str, str, str]) -> Path | None:
    return _shared[-1] / hashlib.sha256(repr(key).encode()).hexdigest() if _shared else None


def _is_remembered(key: tuple[str, str, str]) -> bool:
    file = _file(key)
    if key not in _remembered and file and file.exists():
        values = json.loads(file.read_text())
        values["resources"] = [Resource(**resource) for resource in values["resources"]]
        _remembered[key] = checkout.Declared(**values)
    return key in _remembered


def _share(key: tuple[str, str, str], rendered: checkout.Declared) -> None:
    if file := _file(key):
        file.parent.mkdir(exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(asdict(rendered)))
        draft.replace(file)


def _digest(project: Path) -> str:
    linked = all((project / name).is_symlink() for name in PROGRAM)
    return _digest_of_ours() if linked else _digest_of(project)


@cache
def _digest_of_ours() -> str:
    return _digest_of(ROOT)


def _digest_of(project: Path) -> str:
    digest = hashlib.sha256()
    paths = [project / name for name in PROGRAM if name != "docs"]
    for path in sorted(below for top in paths for below in (top.rglob("*") if top.is_dir() else [top])):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(project)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class CommandResult:
    """What a command printed and its status."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def run(folder: Path, *words: str) -> CommandResult:
    """`python -m sitectl ARGUMENTS` on the checkout in `folder`, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stderr(err):
        status = main([words[0], "--project", str(folder), *words[1:]], out=out)
    return CommandResult(status, out.getvalue(), err.getvalue())
