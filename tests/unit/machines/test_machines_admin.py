"""Describing a rack, and telling a running one what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.machines.__main__ import main
from lab.machines.admin import AdminServer, ask
from lab.machines.spec import load_rack
from tests.unit.machines.emulated_rack import Bench, eventually

pytestmark = pytest.mark.processes

RACK = """
cluster: recorded
factory: {host: 127.0.0.1, versions: [v1.13.9]}
speed: {boot_s: 0.5}
machines:
  - {name: cp-1, address: 198.18.0.10, pod_cidr: 198.18.1.0/24}
  - {name: hgx-1, address: 198.18.0.11, pod_cidr: 198.18.2.0/24, hardware: hgx-h200}
"""


@pytest.fixture
def folder(bench: Bench) -> Iterator[Path]:
    server = AdminServer(bench.rack)
    yield bench.rack.folder
    server.close()


def test_a_rack_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(RACK)
    rack = load_rack(file)
    assert [machine.hardware for machine in rack.machines] == ["infra", "hgx-h200"]
    assert rack.speed.boot_s == 0.5
    assert rack.factory is not None
    assert rack.factory.versions == ("v1.13.9",)


@pytest.mark.parametrize(
    ("wrong", "right", "refusal"),
    [
        ("hardware: hgx-h200", "hardware: gpu", "allowed: infra, hgx-h200"),
        ("198.18.0.11", "198.18.0.10", "address 198.18.0.10:50000 is there twice"),
        ("198.18.0.11", "198.18.0.300", "machine hgx-1"),
        ("boot_s", "boots", "boots"),
        ("cluster: recorded", "cluster: k3s", "allowed: recorded, kwok"),
    ],
)
def test_mistakes_in_a_rack_are_named(tmp_path: Path, wrong: str, right: str, refusal: str) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(RACK.replace(wrong, right))
    with pytest.raises(LabError, match=refusal):
        load_rack(file)


def test_power(bench: Bench, folder: Path) -> None:
    (off,) = ask(folder, {"machine": "m1", "action": "off"})
    assert (off["power"], off["stage"]) == ("off", "unknown")
    assert ask(folder, {"machine": "m1", "action": "on"})[0]["power"] == "on"
    bench.wait_stage("m1", "maintenance")
    before = bench.rack.machines["m1"].store.disks.boot_id
    ask(folder, {"machine": "m1", "action": "cycle"})
    eventually(lambda: bench.rack.machines["m1"].store.disks.boot_id != before)


def test_faults_by_the_command_line(bench: Bench, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--folder", str(folder)]
    assert main([*at, "fault", "m2", "die", "--at", "install", "--times", "1"]) == 0
    assert [fault.at for fault in bench.rack.machines["m2"].faults.all()] == ["install"]
    assert main([*at, "clear", "all"]) == 0
    assert bench.rack.machines["m2"].faults.all() == ()
    assert main([*at, "show"]) == 0
    assert capsys.readouterr().out.count('"emulated": true') == 5
    assert main([*at, "fault", "m9", "late"]) == 1
    assert "machines: m1, m2" in capsys.readouterr().err


def test_no_rack_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"lab\.machines run"):
        ask(tmp_path, {})
