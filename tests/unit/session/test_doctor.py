import json
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from floor import command_line
from lab import doctor
from lab.cluster import network
from lab.errors import LabError
from lab.paths import Lab

WHOLE = IPv4Network("198.18.0.0/18")


@pytest.mark.parametrize(
    ("route", "foreign"),
    [
        ({"dst": "default", "gateway": "192.0.2.1"}, []),
        ({"dst": "198.18.0.0/18", "gateway": "198.18.63.2", "dev": "ours"}, []),
        ({"dst": "198.18.64.0/18", "dev": "other"}, []),
        ({"dst": "198.18.0.0/15", "dev": "vpn0"}, ["198.18.0.0/15 via vpn0"]),
        ({"dst": "198.18.3.4", "gateway": "10.0.0.1", "dev": "eth0"}, ["198.18.3.4 via 10.0.0.1"]),
        ({"type": "local", "dst": "198.18.63.1", "dev": "ours"}, []),
        ({"dst": "fe80::/64", "dev": "eth0"}, []),
        ({"dst": "0.0.0.0/0", "dev": "eth0"}, []),
    ],
)
def test_only_routes_into_the_labs_addresses_count(route: dict[str, Any], foreign: list[str]) -> None:
    assert doctor.foreign_routes([route], WHOLE, "ours") == foreign


def finding(state: Any, fix: str = "") -> doctor.Finding:
    return doctor.Finding(check="veth pairs", state=state, result="it", fix=fix)


def test_the_table_shows_a_fix_only_where_there_is_something_to_fix() -> None:
    assert "fix:" not in doctor.render([finding("ok", fix="do this")])
    table = doctor.render([finding("failed", fix="do this"), finding("info")])
    assert "fix: do this" in table
    assert "1 of 2 keep the lab from running" in table


@pytest.mark.parametrize(("states", "status"), [(["ok", "info", "todo", "warning"], 0), (["ok", "failed"], 1)])
def test_only_what_make_lab_cannot_fix_fails(
    states: list[Any], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda _: [finding(state) for state in states])
    lab = Lab(home=tmp_path, cache=tmp_path)
    assert command_line.invoke(doctor.command, ["--json"], name="doctor", obj=lab) == status
    assert [entry["state"] for entry in json.loads(capsys.readouterr().out)] == states


def test_a_check_that_raises_becomes_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(lab: Lab) -> None:
        raise LabError("lab 0 already runs from elsewhere", fix="LAB_INDEX=1")

    monkeypatch.setattr(network, "require_own", refuse)
    findings = {entry.check: entry for entry in doctor.examine(Lab(home=tmp_path / "lab", cache=tmp_path / "cache"))}
    assert (findings["addresses"].state, findings["addresses"].fix) == ("failed", "LAB_INDEX=1")
    assert "SIMULATOR" in findings["model server"].result
    assert findings["tools"].state == "todo", "an empty cache is what make lab fills"
    assert "STAND-IN" in findings["command plugin"].result


def test_a_lab_of_a_real_vllm_says_what_its_answers_are_worth(tmp_path: Path) -> None:
    lab = Lab(home=tmp_path / "lab", cache=tmp_path / "cache")
    lab.home.mkdir()
    lab.chosen_site.touch()
    findings = {entry.check: entry for entry in doctor.examine(lab)}
    assert "TINY MODEL" in findings["model server"].result
