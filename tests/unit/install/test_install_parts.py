"""The run as a whole: names of parts, links, Debian programs, and what the command line says."""

from __future__ import annotations

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab import cli
from lab.errors import LabError
from lab.install import command, go_caches, installer, parts, system
from lab.install.building import go_cache_lock
from lab.install.installer import PARTS, Installation, State, chosen_parts, install, link
from lab.install.running import run_logged
from lab.install.store import locked
from lab.paths import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(home=tmp_path / "home", cache=tmp_path / "cache")


class RecordedPart:
    """A part that notes what was asked of it."""

    def __init__(self, name: str, *, ready: bool) -> None:
        self.name = name
        self.ready = ready
        self.installed = 0

    def version(self) -> str:
        return "v1"

    def state(self, _run: Installation) -> State:
        return State(ready=self.ready, note="cached" if self.ready else "missing", size=2_000_000)

    def install(self, _run: Installation) -> None:
        self.installed += 1


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> tuple[RecordedPart, RecordedPart]:
    parts = RecordedPart("one", ready=True), RecordedPart("two", ready=False)
    monkeypatch.setattr(installer, "PARTS", parts)
    return parts


def test_every_part_says_where_it_is_in_the_row(
    lab: Lab, recorded: tuple[RecordedPart, RecordedPart], capsys: pytest.CaptureFixture[str]
) -> None:
    install(lab)
    printed = capsys.readouterr().err
    assert "[install 1/2] one v1 cached, 2.0 MB" in printed
    assert "[install 2/2] two v1 ok (" in printed
    assert [part.installed for part in recorded] == [1, 1]


def test_what_few_labs_need_is_built_by_its_name_alone(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [RecordedPart(f"ready-{ready}", ready=ready) for ready in (True, False)]
    monkeypatch.setattr(installer, "PARTS", parts)
    monkeypatch.setattr(installer, "ON_REQUEST", {part.name for part in parts})
    install(lab)
    assert [part.installed for part in parts] == [1, 0]
    assert "left out; `python -m lab install --only ready-False` builds it" in capsys.readouterr().err
    install(lab, ["ready-False"])
    assert [part.installed for part in parts] == [1, 1]


def test_only_the_named_part_is_touched(lab: Lab, recorded: tuple[RecordedPart, RecordedPart]) -> None:
    install(lab, ["two"])
    assert [part.installed for part in recorded] == [0, 1]


def test_a_full_disk_is_an_error_that_names_the_part(
    lab: Lab, recorded: tuple[RecordedPart, RecordedPart], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_run: Installation) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recorded[1], "install", fail)
    with pytest.raises(LabError, match=r"part two: .*No space left") as failure:
        install(lab)
    assert str(lab.cache) in failure.value.fix


def test_an_unknown_part_lists_the_known_ones() -> None:
    with pytest.raises(LabError, match="no part is called helmm") as failure:
        chosen_parts(["crds", "helmm"])
    assert "kubernetes" in failure.value.fix
    assert [part.name for part in chosen_parts(["crds", "etcd"])] == ["etcd", "crds"]
    assert chosen_parts(None) == PARTS


def test_the_go_caches_are_offered_for_dropping_and_dropped(
    lab: Lab, recorded: tuple[RecordedPart, RecordedPart], capsys: pytest.CaptureFixture[str]
) -> None:
    (lab.cache / "go" / "build").mkdir(parents=True)
    (lab.cache / "go" / "build" / "object").write_bytes(b"x" * 3_000_000)
    install(lab)
    assert "hold 3.0 MB" in (printed := capsys.readouterr().err)
    assert "--drop-go-cache" in printed
    install(lab, keep_go_cache=False)
    assert "3.0 MB freed" in capsys.readouterr().err
    assert not (lab.cache / "go").exists()


def test_between_two_parts_the_newest_of_what_go_compiled_is_kept(lab: Lab) -> None:
    compiled, modules = lab.cache / "go" / "build" / "0a", lab.cache / "go" / "mod"
    for age, name in enumerate(("oldest", "older", "newest")):
        compiled.mkdir(parents=True, exist_ok=True)
        (compiled / name).write_bytes(b"x" * 100)
        os.utime(compiled / name, (1000 + age, 1000 + age))
    for path in (modules / "k8s.io" / "api@v1" / "doc.go", modules / "cache" / "download" / "api.zip"):
        path.parent.mkdir(parents=True)
        path.touch()
    (modules / "k8s.io" / "api@v1").chmod(0o555)
    with locked(go_cache_lock(lab), "a build", shared=True):
        go_caches.trim(lab, kept=250)
    assert go_caches.size_of(lab) == 300, "it takes nothing from a build that runs"
    go_caches.trim(lab, kept=250)
    assert {path.name for path in compiled.iterdir()} == {"older", "newest"}
    assert [path.name for path in modules.iterdir()] == ["cache"]


def test_links_of_parts_that_are_gone_are_dropped(lab: Lab, recorded: tuple[RecordedPart, RecordedPart]) -> None:
    link(lab.bin / "old-tool", lab.cache / "tools" / "old-1" / "bin" / "old-tool")
    link(lab.bin / "helm", lab.cache / "tools" / "helm-1" / "bin" / "helm")
    link(lab.bin / "ip", Path("/sbin/ip"))
    install(lab)
    assert sorted(path.name for path in lab.bin.iterdir()) == ["helm", "ip"]


def test_missing_debian_programs_are_named_by_package(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_SYSTEM_FOLDERS", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError) as failure:
        system.ensure_debian_programs(lab)
    for package in ("bubblewrap", "iproute2", "iptables", "nftables"):
        assert package in failure.value.what
        assert package in failure.value.fix


def test_our_own_links_are_not_taken_for_the_machines_programs(lab: Lab, tmp_path: Path) -> None:
    lab.bin.mkdir(parents=True)
    (lab.bin / "nft").write_text("#!/bin/sh\n")
    (lab.bin / "nft").chmod(0o755)
    (tmp_path / "other-way").symlink_to(lab.bin)
    programs = system.debian_programs(lab, {"PATH": f"{tmp_path / 'other-way'}"})
    assert programs["nft"] != tmp_path / "other-way" / "nft"


@pytest.mark.parametrize("wheel", parts.WHEELS, ids=lambda wheel: wheel.name)
def test_a_missing_wheel_is_one_error(wheel: parts.WheelPrograms) -> None:
    with pytest.raises(LabError, match=wheel.package):
        system.wheel_programs(replace(wheel, module="nonesuch._bin"))
    assert set(system.wheel_programs(wheel)) == set(wheel.programs)


def test_a_long_command_says_that_it_lives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "import time; print('compiling things', flush=True); time.sleep(0.5)"
    status = run_logged([sys.executable, "-c", program], log=tmp_path / "log", label="part", heartbeat_s=0.2)
    assert status == 0
    assert "part: still at it after" in (printed := capsys.readouterr().err)
    assert "compiling things" in printed


def test_the_command_takes_parts_and_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[dict[str, object]] = []
    monkeypatch.setattr(command, "install", lambda _lab, parts, **rest: calls.append({"parts": parts, **rest}))
    words = ["install", "--only", "crds", "--bundle", str(tmp_path), "--drop-go-cache"]
    assert cli.main(words) == 0
    assert calls == [{"parts": ["crds"], "keep_go_cache": False, "bundle": tmp_path, "verify": False}]
