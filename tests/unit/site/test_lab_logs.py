from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from floor import command_line
from lab.errors import LabError
from lab.paths import Lab
from lab.site import guard, logs, status


@pytest.fixture
def home(tmp_path: Path) -> Lab:
    lab = Lab(home=tmp_path, cache=tmp_path / "cache", index=6)
    write(lab, "team_chat-7d-aa_uid1/main/0.log", "first run", age_s=50)
    write(lab, "team_chat-7d-aa_uid1/main/10.log", "eleventh run", age_s=40)
    write(lab, "team_chat-7d-aa_uid1/main/9.log", "tenth run", age_s=45)
    write(lab, "team_chat-7d-aa_uid1/sidecar/0.log", "sidecar", age_s=40)
    write(lab, "team_db-0_old/main/0.log", "old pod", age_s=30)
    write(lab, "team_db-0_new/main/0.log", "new pod", age_s=10)
    (lab.logs / "kube-proxy.log").write_text("proxy")
    return lab


def write(lab: Lab, name: str, text: str, *, age_s: float) -> None:
    path = lab.logs / "pods" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    moment = 1_000_000 - age_s
    os.utime(path, (moment, moment))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("kube-proxy", "proxy"),
        ("team/db-0", "new pod"),
        ("team/db-0/main", "new pod"),
        ("team/chat-7d-aa/sidecar", "sidecar"),
        ("team/chat-7d-aa/main", "eleventh run"),
    ],
)
def test_newest_run_of_the_newest_pod_is_found(home: Lab, source: str, text: str) -> None:
    assert logs.find(home, source).read_text() == text


def test_a_lab_without_logs_says_how_to_bring_it_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It printed an empty line."""
    empty = Lab(home=tmp_path / "none", cache=tmp_path, index=6)
    with pytest.raises(LabError, match=r"lab 6 of .* has no logs") as refused:
        command_line.invoke(logs.command, [], name="logs", obj=empty)
    assert refused.value.fix == "bring it up: python -m lab up"
    assert capsys.readouterr().out == ""


def test_beginning_of_a_pods_name_suffices(home: Lab) -> None:
    assert logs.find(home, "team/db").read_text() == "new pod"


def test_previous_run_is_the_one_before(home: Lab) -> None:
    assert logs.find(home, "team/chat-7d-aa/main", previous=True).read_text() == "tenth run"
    with pytest.raises(LabError, match="has not been restarted"):
        logs.find(home, "team/db-0", previous=True)


def test_more_than_one_container_is_asked_back(home: Lab) -> None:
    with pytest.raises(LabError, match="more than one container") as refused:
        logs.find(home, "team/chat-7d-aa")
    assert "team/chat-7d-aa/main, team/chat-7d-aa/sidecar" in refused.value.fix


def test_unknown_source_names_a_near_one(home: Lab) -> None:
    with pytest.raises(LabError, match="no log of 'kube-prxy'") as refused:
        logs.find(home, "kube-prxy")
    assert "did you mean kube-proxy?" in refused.value.fix


def test_status_table_sums_memory_up() -> None:
    rows = [
        status.Row(component="etcd", state="running", pid=7, restarts=1, memory_bytes=2**20),
        status.Row(component="assigner", state="waits for a.kubeconfig", pid=None, restarts=0, memory_bytes=2**21),
    ]
    lines = status.render(rows).splitlines()
    assert lines[1].split() == ["etcd", "running", "7", "1", "1", "MiB"]
    assert "waits for a.kubeconfig  -" in lines[2]
    assert lines[3].split() == ["together", "3", "MiB"]


def test_status_of_a_lab_whose_supervisor_died_says_how_to_bring_it_back(home: Lab) -> None:
    entry = {"state": "running", "pid": None, "restarts": 0, "log": "x"}
    guard.status_file(home).write_text(json.dumps({"supervisor": 1, "components": {"etcd": entry}}))
    assert status.rows(home)[0].state == "dead: the guard starts another, or `python -m lab up`"
