import ast
import sys
from pathlib import Path

import pytest

from lab import bootstrap


def test_an_old_python_can_read_it() -> None:
    ast.parse(Path(bootstrap.__file__).read_text(), feature_version=(3, 6))


def test_the_stamp_is_of_lock_and_python() -> None:
    stamps = {bootstrap.stamp(lock, version) for lock in (b"a", b"b") for version in ("3.11", "3.12")}
    assert len(stamps) == 4


def test_without_a_new_enough_python_the_fix_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        bootstrap.chosen_python()
    assert "Python 3.9 is too old, 3.11 or later" in capsys.readouterr().err


def test_a_shim_that_runs_nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, status in (("python3.14", 127), ("python3.12", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.chosen_python() == str(tmp_path / "python3.12")


def test_nothing_is_made_when_the_stamp_fits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[str] = []
    lock = tmp_path / "requirements.lock"
    lock.write_text("a==1\n")

    def make(python: str) -> None:
        made.append(python)
        (tmp_path / "venv").mkdir(exist_ok=True)

    monkeypatch.setattr(bootstrap, "LOCK", lock)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / "venv")
    monkeypatch.setattr(bootstrap, "make", make)
    bootstrap.main()
    bootstrap.main()
    assert len(made) == 1
    lock.write_text("a==2\n")
    bootstrap.main()
    assert len(made) == 2


def test_a_link_to_another_checkouts_environment_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, lock = tmp_path / "other", tmp_path / "requirements.lock"
    other.mkdir()
    (other / "package").touch()
    lock.write_text("a==1\n")
    (tmp_path / "venv").symlink_to(other)
    monkeypatch.setattr(bootstrap, "LOCK", lock)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / "venv")
    with pytest.raises(SystemExit):
        bootstrap.main()
    assert [file.name for file in other.iterdir()] == ["package"]
    assert "remove the link" in capsys.readouterr().err
