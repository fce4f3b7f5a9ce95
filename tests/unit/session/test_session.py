import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from floor import command_line
from lab import session
from lab.errors import LabError
from lab.paths import CHECKOUT, Lab
from lab.plugins.kubernetes.awaiting.services import SETTLE_VARIABLE


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(home=tmp_path / "home", cache=tmp_path / "cache")


@pytest.fixture
def outside(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has no Pulumi at all."""
    return {"PATH": "/usr/bin:/bin", "PULUMI_HOME": str(tmp_path / "users"), "HOME": str(tmp_path)}


def official_plugin(outside: dict[str, str], lab: Lab, name: str) -> Path:
    version = next(choice for choice in session.plugins(lab, outside) if choice.name == name).reason
    number = version.split("no official plugin v")[1].split()[0]
    program = Path(outside["PULUMI_HOME"]) / "plugins" / f"resource-{name}-v{number}" / f"pulumi-resource-{name}"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def fake_pulumi(lab: Lab, outside: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A `pulumi` that writes down what it is asked, and makes stacks as the real one does."""
    lab.bin.mkdir(parents=True)
    program = lab.bin / "pulumi"
    state = lab.pulumi / ".pulumi" / "stacks" / "site"
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {lab.home}/asked\n'
        f'case "$*" in "stack init"*) mkdir -p {state}; touch {state}/lab.json;; fail) echo broken >&2; exit 3;; esac\n'
    )
    program.chmod(0o755)
    for name, value in outside.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: site\n")
    return folder


def test_settings_applied_twice_are_settings_applied_once(lab: Lab, outside: dict[str, str]) -> None:
    once = session.environment(lab, outside)
    assert session.environment(lab, once) == once


def test_python_comes_first_and_the_users_path_last(lab: Lab, outside: dict[str, str]) -> None:
    folders = session.settings(lab, outside)["PATH"].split(os.pathsep)
    assert folders[1:] == [str(lab.bin), str(lab.home / "stand-ins"), "/usr/bin", "/bin"]
    assert (Path(folders[0]) / "python").exists()


def test_state_and_login_are_the_labs_own(lab: Lab, outside: dict[str, str]) -> None:
    settings = session.settings(lab, outside)
    assert settings["PULUMI_BACKEND_URL"] == f"file://{lab.pulumi}?metadata=skip"
    assert Path(settings["PULUMI_HOME"]).is_relative_to(lab.home)
    assert settings["KUBECONFIG"] == str(lab.kubeconfig)


def test_the_checked_in_stack_file_is_for_lab_0(lab: Lab, outside: dict[str, str]) -> None:
    assert "PULUMI_OPTION_CONFIG_FILE" not in session.settings(lab, outside)
    assert session.stack_file(lab) == CHECKOUT / "Pulumi.lab.yaml"


def test_another_lab_has_a_stack_file_of_its_own_addresses(
    lab: Lab, outside: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(lab, index=5)
    fake_pulumi(other, outside, monkeypatch)
    session.prepare(other, project)
    file = session.settings(other, outside)["PULUMI_OPTION_CONFIG_FILE"]
    assert file == str(session.stack_file(other)) == str(other.home / "Pulumi.lab.yaml")
    assert Path(file).read_text() == session.moved((CHECKOUT / "Pulumi.lab.yaml").read_text(), other.network)


def test_a_lab_may_have_another_site(
    lab: Lab, outside: dict[str, str], project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy in the lab's folder is the one that the engine writes to, and the file itself stays as it is."""
    file = tmp_path / "other.yaml"
    file.write_text("config: {}\n")
    monkeypatch.setenv("LAB_SITE_FILE", str(file))
    other = replace(lab, site_file=Lab.from_environment().site_file)
    fake_pulumi(other, outside, monkeypatch)
    session.prepare(other, project)
    chosen = Path(session.settings(other, outside)["PULUMI_OPTION_CONFIG_FILE"])
    assert chosen == session.stack_file(other) == other.home / "Pulumi.lab.yaml"
    assert chosen.read_text() == file.read_text()


def test_a_session_inside_another_ones_takes_no_stack_file_from_it(lab: Lab, outside: dict[str, str]) -> None:
    within = session.environment(replace(lab, index=5), outside)
    assert "PULUMI_OPTION_CONFIG_FILE" not in session.environment(lab, within)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://198.18.0.10:6443", "https://198.19.64.10:6443"),
        ("{pods: 198.18.0.0/19, services: 198.18.32.0/20}", "{pods: 198.19.64.0/19, services: 198.19.96.0/20}"),
        ("198.18.63.255", "198.19.127.255"),
        ("198.18.64.1 is lab 1's, 10.0.0.1 nobody's", "198.18.64.1 is lab 1's, 10.0.0.1 nobody's"),
        ("version 1.198.18.0.10, 198.18.0.999", "version 1.198.18.0.10, 198.18.0.999"),
    ],
)
def test_addresses_of_lab_0_move_and_no_others(lab: Lab, text: str, expected: str) -> None:
    assert session.moved(text, replace(lab, index=5).network) == expected


def test_services_settle_in_a_second_unless_set_otherwise(lab: Lab, outside: dict[str, str]) -> None:
    assert session.settings(lab, outside)[SETTLE_VARIABLE] == "1"
    assert session.settings(lab, {**outside, SETTLE_VARIABLE: "10"})[SETTLE_VARIABLE] == "10"


def test_official_plugins_keep_the_users_pulumi_home(lab: Lab, outside: dict[str, str]) -> None:
    official_plugin(outside, lab, "command")
    kinds = {choice.name: choice.kind for choice in session.plugins(lab, outside)}
    assert kinds == {"kubernetes": "stand-in", "command": "official"}
    assert session.settings(lab, outside)["PULUMI_HOME"] == outside["PULUMI_HOME"]


def test_prepare_links_only_the_stand_ins_that_serve(
    lab: Lab, outside: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pulumi(lab, outside, monkeypatch)
    session.prepare(lab, project)
    links = lab.home / "stand-ins"
    assert sorted(link.name for link in links.iterdir()) == ["pulumi-resource-command", "pulumi-resource-kubernetes"]
    assert (links / "pulumi-resource-command").resolve() == CHECKOUT / "lab/plugins/bin/pulumi-resource-command"
    official_plugin(outside, lab, "command")
    session.prepare(lab, project)
    assert [link.name for link in links.iterdir()] == ["pulumi-resource-kubernetes"], "PATH would win over the official"


def test_the_stack_is_made_once(
    lab: Lab, outside: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pulumi(lab, outside, monkeypatch)
    session.run_pulumi(lab, "preview", project=project)
    session.run_pulumi(lab, "up", project=project)
    assert (lab.home / "asked").read_text().splitlines() == ["stack init lab --no-select", "preview", "up"]
    assert lab.pulumi.stat().st_mode & 0o077 == 0


def test_a_failed_pulumi_says_what_it_said(
    lab: Lab, outside: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pulumi(lab, outside, monkeypatch)
    with pytest.raises(LabError, match="broken"):
        session.run_pulumi(lab, "fail", project=project)
    assert session.run_pulumi(lab, "fail", project=project, check=False).returncode == 3


def test_without_pulumi_the_fix_is_named(
    lab: Lab, outside: dict[str, str], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in outside.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LabError, match="make tools"):
        session.prepare(lab, project)


def test_only_locks_of_dead_engines_of_this_machine_are_dropped(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lab.pulumi / ".pulumi" / "locks" / "organization" / "site" / "lab"
    folder.mkdir(parents=True)
    alive, here = 4242, socket.gethostname()
    monkeypatch.setattr(session, "_is_pulumi", lambda pid: pid == alive)
    holders = {
        "dead": {"pid": 2**22 + 1, "hostname": here},
        "alive": {"pid": alive, "hostname": here},
        "elsewhere": {"pid": 2**22 + 1, "hostname": f"not-{here}"},
    }
    for name, holder in holders.items():
        (folder / f"{name}.json").write_text(json.dumps(holder))
    (folder / "torn.json").write_text("{")
    assert [lock.stem for lock in session.drop_dead_locks(lab)] == ["dead"]
    assert sorted(lock.stem for lock in folder.iterdir()) == ["alive", "elsewhere", "torn"]


def test_env_prints_lines_that_a_shell_takes(
    lab: Lab,
    outside: dict[str, str],
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = replace(lab, home=lab.home.with_name("odd $home"))
    fake_pulumi(odd, outside, monkeypatch)
    monkeypatch.setattr(session, "prepare", lambda _: None)
    assert command_line.invoke(session.command, [], name="env", obj=odd) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("export ") for line in lines)
    assert f"export KUBECONFIG='{odd.kubeconfig}'" in lines
