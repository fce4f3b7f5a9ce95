"""Packages of the project's lock: downloaded by pip itself, from an index that is a folder, and compared."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from bundle.errors import BundleError
from bundle.wheels import LOCK, Package, bring_wheels, locked_packages, wheel_problems
from floor.digests import sha256_of

pytestmark = pytest.mark.row("opening 14")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, and from nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return publish(folder, "1.0", tmp_path / LOCK)


def publish(index: Path, version: str, lock: Path) -> Path:
    """A package in the index, which the lock lists from now on."""
    wheel, info = index / f"tiny-{version}-py3-none-any.whl", f"tiny-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    lock.write_text(f"tiny=={version} \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{sha256_of(wheel)}\n")
    return wheel


def test_packages_are_downloaded_as_locked(tmp_path: Path, index: Path) -> None:
    (package,) = locked_packages(tmp_path)
    assert (package.name, package.version) == ("tiny", "1.0")
    bring_wheels(tmp_path, tmp_path / "wheels")
    assert [*wheel_problems([package], tmp_path / "wheels")] == []
    other = Package("other", "2.0", frozenset({"1" * 64}))
    assert [*wheel_problems([package, other], tmp_path / "wheels")] == ["wheels: no file of other 2.0"]
    (tmp_path / "wheels" / index.name).write_bytes(b"spoiled")
    assert len([*wheel_problems([package], tmp_path / "wheels")]) == 2


@pytest.mark.slow
def test_a_raised_package_leaves_no_earlier_file(tmp_path: Path, index: Path) -> None:
    bring_wheels(tmp_path, tmp_path / "wheels")
    raised = publish(index.parent, "1.1", tmp_path / LOCK)
    bring_wheels(tmp_path, tmp_path / "wheels")
    assert [file.name for file in (tmp_path / "wheels").iterdir()] == [raised.name]
    assert [*wheel_problems(locked_packages(tmp_path), tmp_path / "wheels")] == []


def test_a_package_of_another_content_is_refused(tmp_path: Path, index: Path) -> None:
    (tmp_path / LOCK).write_text(f"tiny==1.0 \\\n    --hash=sha256:{'0' * 64}\n")
    with pytest.raises(BundleError, match=r"pip cannot download what requirements\.lock lists"):
        bring_wheels(tmp_path, tmp_path / "wheels")


def test_the_projects_own_lock_is_read_whole() -> None:
    root = Path(__file__).parents[3]
    lines = (root / LOCK).read_text().splitlines()
    packages = locked_packages(root)
    assert len(packages) == len([line for line in lines if "==" in line])
    assert all(package.digests for package in packages)
