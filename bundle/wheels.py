"""Python packages of the project, as its requirements.lock pins them by sha256: for an install without an index."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bundle.programs import FetchingProgram
from floor.digests import sha256_of

LOCK = "requirements.lock"
_PACKAGE = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})")
_FIX = "check the connection and pip's index (PIP_INDEX_URL), then call this again: what is there stays"


@dataclass(frozen=True)
class Package:
    """One line of the lock."""

    name: str
    version: str
    digests: frozenset[str]
    """sha256 in hex of each file that its publisher offers."""


def locked_packages(project: Path) -> list[Package]:
    """Every package of the lock, sorted; none without the file, as in the folder of an installed sitectl's user."""
    if not (project / LOCK).is_file():
        return []
    packages, text = list[Package](), (project / LOCK).read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", text).splitlines()
    for line in lines:
        if match := _PACKAGE.match(line):
            packages.append(Package(match["name"], match["version"], frozenset(_HASH.findall(line))))
    return sorted(packages, key=lambda package: package.name)


def bring_wheels(project: Path, folder: Path) -> None:
    """The files of all packages for this machine's Python, by pip, which compares them, and no others.

    Raises BundleError; other files stay then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    download(project, Path(LOCK), folder)
    for file, package in _packages_of(locked_packages(project), folder).items():
        if package is None:
            # Of an earlier lock: pip leaves it there.
            file.unlink()


def download(project: Path, requirements: Path, folder: Path, *options: str) -> None:
    """Files of packages that are required with their sha256, by pip, which compares them. Raises BundleError."""
    words = ["--require-hashes", "--no-deps", "--requirement", str(requirements), "--dest", str(folder.resolve())]
    FetchingProgram(command=sys.executable, folder=project, install="make venv").run(
        ["-m", "pip", "--disable-pip-version-check", "download", *words, *options, "--quiet"],
        what="the packages",
        failed=f"pip cannot download what {LOCK} lists",
        fix=_FIX,
        limit_s=None,
    )


def wheel_problems(packages: list[Package], folder: Path) -> Iterator[str]:
    """Packages that no file of the folder is, and files that are no package of the lock."""
    files = _packages_of(packages, folder)
    for file, package in files.items():
        if package is None:
            yield f"wheels/{file.name}: no file that {LOCK} lists"
    for package in packages:
        if package not in files.values():
            yield f"wheels: no file of {package.name} {package.version}"


def _packages_of(packages: list[Package], folder: Path) -> dict[Path, Package | None]:
    """Which package each file of the folder is, by its content."""
    known = {digest: package for package in packages for digest in package.digests}
    return {file: known.get(sha256_of(file)) for file in sorted(folder.glob("*")) if file.is_file()}
