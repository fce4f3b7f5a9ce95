"""`plan-all`: several machines asked by one process, each of them as `plan` asks it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from talos.cli.failures import Exit
from talos.cli.main import main
from talos.secrets import talosconfig
from tests.unit.machines.emulated_rack import Bench, new_bench

pytestmark = [pytest.mark.processes, pytest.mark.row("000.11")]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = new_bench(tmp_path / "machines", "infra", "hgx-h200", "hgx-h200")
    monkeypatch.setenv("TALOS_SECRETS_TEXT", made.bundle.export())
    with made.rack:
        for name in made.rack.machines:
            made.wait_stage(name, "maintenance")
        yield made


def entry(bench: Bench, machine: str, config: bytes = b"", *options: str) -> dict[str, Any]:
    spec = bench.rack.machines[machine].spec
    words = ["--address", f"{spec.address}:{spec.port}", "--name", machine, "--image", bench.image, "--insecure"]
    words += ["--poll", "0.02"]
    return {"options": [*words, *(options or ("--timeout", "60s"))], "config": config.decode()}


def ended(monkeypatch: pytest.MonkeyPatch, text: str, *options: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main(["plan-all", *options])


@pytest.mark.parametrize("at_once", ["1", "3"])
def test_each_machine_answers_for_itself_and_in_order(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at_once: str
) -> None:
    """One that installs, one that refuses, one that is away and keeps no other from answering, one without a config."""
    bench.rack.machines["m3"].power_off()
    asked = [
        entry(bench, "m3", bench.worker("m3"), "--timeout", "2s"),
        entry(bench, "m2", b"wrong: true\nmachine: {}\n"),
        entry(bench, "m1", bench.control_plane("m1")),
        entry(bench, "m2"),
    ]
    assert ended(monkeypatch, json.dumps(asked), "--at-once", at_once) == 0
    shown = capsys.readouterr()
    answers = json.loads(shown.out)
    assert [(answer["node"], answer["change"]) for answer in answers] == [
        ("m3", "unreachable"),
        ("m2", "refused"),
        ("m1", "install"),
        ("m2", "install"),
    ]
    assert "unknown key" in answers[1]["reason"]
    assert bench.bundle.trustd_token not in shown.out + shown.err


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"options": []}]', '{"canary": 1}', '[{"options": "a", "config": ""}]']
)
def test_what_is_no_list_of_machines_is_an_error_that_does_not_quote_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert ended(monkeypatch, text) == Exit.USAGE
    errors = capsys.readouterr().err
    assert "stdin is no JSON list of objects with `options` and `config`" in errors
    assert "canary" not in errors


def test_the_credentials_of_a_command_are_made_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    issued: list[object] = []
    issue = talosconfig.issue

    def counted(*args: Any, **how: Any) -> Any:
        issued.append(args)
        return issue(*args, **how)

    monkeypatch.setattr(talosconfig, "issue", counted)
    assert ended(monkeypatch, json.dumps([entry(bench, "m1"), entry(bench, "m2")])) == 0
    assert len(issued) == 1
