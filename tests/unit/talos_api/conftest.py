"""Machines with a script, and commands that are run on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from talos.cli.main import main
from tests.unit.talos_api.command_runs import CANARY, Command, Done, talosconfig
from tests.unit.talos_api.scripted_machine import ScriptedMachine


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("TALOSCONFIG_TEXT", talosconfig())

    def command(name: str, machine: ScriptedMachine, *options: str, config: str = "", timeout: str = "60s") -> Done:
        monkeypatch.setenv("TALOS_MACHINE_CONFIG", config)
        code = main(
            [name, "--address", machine.address, "--name", "hgx-1", "--timeout", timeout, "--poll", "0.02", *options]
        )
        shown = capsys.readouterr()
        assert CANARY not in shown.out + shown.err
        assert "canary-token" not in shown.out + shown.err
        return Done(code, shown.out, shown.err)

    return command


@pytest.fixture
def new_machine() -> Iterator[ScriptedMachine]:
    with ScriptedMachine().serving() as machine:
        yield machine


@pytest.fixture
def machine() -> Iterator[ScriptedMachine]:
    with ScriptedMachine(configured=True).serving() as running:
        yield running
