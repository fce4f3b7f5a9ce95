"""The command line itself: help, where secrets come from and go to, exit codes, interruption, the factory."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import grpc
import pytest
import yaml

from talos.api.messages import new
from talos.cli import inputs, waiting
from talos.cli.failures import Exit, InputError
from talos.cli.inputs import Address
from talos.cli.main import COMMAND_LINE, main
from tests.command_lines import below, help_text
from tests.unit.talos_api.machine_certificates import cluster
from tests.unit.talos_api.machine_server import Machine, data, fail, serving

CANARY = "canary-93be52"
ROOT = Path(__file__).parents[3]
PAGE = b"p" * 512
SNAPSHOT = PAGE + hashlib.sha256(PAGE).digest()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    owner = cluster()
    identity = owner.client()
    encoded = {"ca": identity.ca, "crt": identity.certificate, "key": identity.key}
    context = {key: base64.b64encode(value).decode() for key, value in encoded.items()}
    monkeypatch.setenv("TALOSCONFIG_TEXT", yaml.safe_dump({"context": "lab", "contexts": {"lab": context}}))
    with serving(Machine.of(owner)) as running:
        yield running


def on(machine: Machine, command: str, *options: str) -> list[str]:
    limits = ("--timeout", "5s", "--poll", "0.05")
    return [command, "--address", f"127.0.0.1:{machine.port}", "--name", "cp-1", *limits, *options]


def kubeconfig(_request: Any, _context: Any) -> Iterator[Any]:
    buffer, text = io.BytesIO(), f"users: {CANARY}\n".encode()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("kubeconfig")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return data(gzip.compress(buffer.getvalue()))


COMMANDS = (
    *("apply", "bootstrap", "kubeconfig", "health", "status", "upgrade"),
    *("reboot", "reset", "client-cert", "etcd-snapshot", "leftovers", "factory"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "exit codes:" in shown
    assert "$TALOSCONFIG_TEXT" in shown
    assert f"python -m talos {command}" in shown
    assert max(map(len, shown.splitlines())) <= 120


def test_every_command_is_in_the_list() -> None:
    assert all(f"  {command} " in help_text(COMMAND_LINE) for command in COMMANDS)


def test_no_option_takes_a_secret() -> None:
    paths = {"--talosconfig", "--config", "--output", "--schematic", "--extensions", "--recover"}
    help_text = "".join(_all_help())
    assert all(f"{path} FILE" in help_text for path in paths)
    secret = re.compile(r"--(token|key|secret|password|ca|cert)(?![a-z])")
    assert [match.group() for match in secret.finditer(help_text)] == []


def _all_help(*above: str) -> Iterator[str]:
    command = below(COMMAND_LINE, *above)[0]
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from _all_help(*above, name)
    yield help_text(COMMAND_LINE, *above)


def test_kubeconfig_to_stdout_and_to_a_file_of_ours(
    machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine.answers["Kubeconfig"] = kubeconfig
    assert main(on(machine, "kubeconfig")) == 0
    assert capsys.readouterr().out == f"users: {CANARY}\n"
    file = tmp_path / "kubeconfig"
    assert main(on(machine, "kubeconfig", "--output", str(file))) == 0
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (f"users: {CANARY}\n", 0o600)
    shown = capsys.readouterr()
    assert CANARY not in shown.out + shown.err


@pytest.mark.slow
def test_a_bundle_is_not_overwritten_by_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until the first `up` the file is the only copy of what owns the cluster."""
    file = tmp_path / "secrets.yaml"
    assert main(["secrets", "--output", str(file)]) == 0
    made = file.read_text()
    assert f"wrote {file}, mode 0600" in capsys.readouterr().err
    assert main(["secrets", "--output", str(file)]) == Exit.REFUSED
    refused = capsys.readouterr().err
    assert f"error: {file} holds another secrets bundle, or something else" in refused
    assert "fix: name another file with --output" in refused
    assert file.read_text() == made
    assert main(["secrets", "--import", str(file), "--output", str(file)]) == 0
    assert file.read_text() == made


@pytest.mark.parametrize("option", ["--import", "--from-config", "--output"])
def test_secrets_of_an_empty_path_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As a variable that is not set leaves it: a new bundle would stand for that of a cluster which exists."""
    assert main(["secrets", option, ""]) == Exit.USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "fix: give" in shown.err


def test_client_cert_has_the_least_role_unless_asked(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    def issue(request: Any, _context: Any) -> Any:
        asked.append((list(request.roles), request.crt_ttl.seconds))
        message = {"talosconfig": f"context: {CANARY}".encode()}
        return new("machine.GenerateClientConfigurationResponse", messages=[message])

    machine.answers["GenerateClientConfiguration"] = issue
    assert main(on(machine, "client-cert")) == 0
    assert capsys.readouterr().out == f"context: {CANARY}"
    assert main(on(machine, "client-cert", "--role", "os:admin", "--lifetime", "8h")) == 0
    assert asked == [(["os:reader"], 86400), (["os:admin"], 8 * 3600)]


def test_a_snapshot_appears_only_when_whole(
    machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "etcd.snapshot"
    machine.answers["EtcdSnapshot"] = lambda _request, _context: data(SNAPSHOT[:-1])
    assert main(on(machine, "etcd-snapshot", "--output", str(file), "--timeout", "1s")) == Exit.AWAY
    assert list(tmp_path.iterdir()) == []
    machine.answers["EtcdSnapshot"] = lambda _request, _context: data(SNAPSHOT)
    capsys.readouterr()
    assert main(on(machine, "etcd-snapshot", "--output", str(file))) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["bytes"], reported["sha256"]) == (len(SNAPSHOT), hashlib.sha256(SNAPSHOT).hexdigest())
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (SNAPSHOT, 0o600)


def test_recovery_uploads_before_it_bootstraps(machine: Machine, tmp_path: Path) -> None:
    steps: list[str] = []

    def recover(pieces: Any, _context: Any) -> Any:
        steps.append(f"recover {sum(len(piece.bytes) for piece in pieces)}")
        return new("machine.EtcdRecoverResponse", messages=[{}])

    def bootstrap(request: Any, _context: Any) -> Any:
        steps.append(f"bootstrap recover={request.recover_etcd}")
        return new("machine.BootstrapResponse", messages=[{}])

    def services(_request: Any, _context: Any) -> Any:
        state = "Running" if len(steps) == 2 else "Preparing"
        return new("machine.ServiceListResponse", messages=[{"services": [{"id": "etcd", "state": state}]}])

    machine.answers |= {"EtcdRecover": recover, "Bootstrap": bootstrap, "ServiceList": services}
    file = tmp_path / "snapshot"
    file.write_bytes(SNAPSHOT)
    assert main(on(machine, "bootstrap", "--recover", str(file))) == 0
    assert steps == [f"recover {len(SNAPSHOT)}", "bootstrap recover=True"]
    assert main(on(machine, "bootstrap", "--recover", str(tmp_path / "none"))) == Exit.USAGE


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, Exit.UNTRUSTED),
        (grpc.StatusCode.INVALID_ARGUMENT, Exit.REFUSED),
        (grpc.StatusCode.INTERNAL, Exit.FAILED),
        (grpc.StatusCode.UNAVAILABLE, Exit.AWAY),
    ],
)
def test_exit_codes(machine: Machine, capsys: pytest.CaptureFixture[str], status: grpc.StatusCode, code: Exit) -> None:
    machine.answers["Kubeconfig"] = lambda _request, context: fail(context, status, "the reason")
    assert main(on(machine, "kubeconfig", "--timeout", "1s")) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "the reason" in shown.err
    assert "fix:" in shown.err


def test_a_new_machine_is_known_in_one_way(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(on(machine, "status", "--insecure", "--fingerprint", "c29tZQ==")) == Exit.USAGE
    assert capsys.readouterr().err == (
        "error: --insecure: not allowed with --fingerprint\n  fix: leave one of them out\n"
    )


@pytest.mark.parametrize(
    ("words", "error", "fix"),
    [
        ("aply", "no command 'aply'; did you mean 'apply'?", "python -m talos --help"),
        ("apply --adress x", "apply has no option --adress; did you mean '--address'?", "python -m talos apply --help"),
        (
            "reset --address x",
            "missing option '--wipe'; allowed: all, system-disk, user-disks",
            "python -m talos reset --help",
        ),
        ("factory links", "missing option '--talos-version'", "python -m talos factory links --help"),
    ],
)
def test_a_wrong_command_line_is_an_error_with_its_fix(
    words: str, error: str, fix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == Exit.USAGE
    assert capsys.readouterr().err == f"error: {error}\n  fix: {fix}\n"


@pytest.mark.parametrize(
    ("command", "call"), [("kubeconfig", "Kubeconfig"), ("client-cert", "GenerateClientConfiguration")]
)
def test_a_call_takes_no_longer_than_the_command_says(
    machine: Machine, capsys: pytest.CaptureFixture[str], command: str, call: str
) -> None:
    """Over either transport; each kind of call has 30 s of its own."""
    over = threading.Event()

    def held_up(_request: Any, context: Any) -> Any:
        over.wait()
        fail(context, grpc.StatusCode.UNAVAILABLE, "too late")

    machine.answers[call] = held_up
    try:
        assert main(on(machine, command, "--timeout", "1s", "--call-timeout", "1s")) == Exit.AWAY
    finally:
        over.set()
    assert f"last: {call}: no complete answer within 1 s" in capsys.readouterr().err


def test_a_bug_shows_where_and_quotes_nothing(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr(inputs, "talosconfig", broken)
    assert main(on(machine, "health")) == Exit.BUG
    shown = capsys.readouterr().err
    assert "RuntimeError" in shown
    assert CANARY not in shown


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"context: x\ncontexts: {{x: {{ca: {CANARY}}}}}",
        f"{{{CANARY}: [",
        f"context: x\ncontexts: {{x: {{endpoints: 7, ca: {CANARY}}}}}",
    ],
    ids=["text", "ca", "yaml", "endpoints"],
)
def test_an_unusable_talosconfig_is_not_quoted(
    machine: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TALOSCONFIG_TEXT", text)
    assert main(on(machine, "health")) == Exit.USAGE
    shown = capsys.readouterr()
    assert CANARY not in shown.out + shown.err


def test_an_interrupted_command_says_so() -> None:
    argv = [sys.executable, "-m", "talos", "status", "--address", "127.0.0.1:1", "--insecure", "--timeout", "60s"]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr
        assert "waiting for an answer" in running.stderr.readline()
        os.kill(running.pid, signal.SIGTERM)
        rest = running.stderr.read()
    assert running.returncode == Exit.INTERRUPTED
    assert "run the same command again" in rest
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1", "10.0.0.1", 50000),
        ("cp-1:6", "cp-1", 6),
        ("[fd00::1]:7", "fd00::1", 7),
        ("fd00::1", "fd00::1", 50000),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)


@pytest.mark.parametrize("text", ["", ":5", "host:", "host:99999", "host:x"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(InputError, match="allowed HOST"):
        Address.parse(text)


def test_durations() -> None:
    assert [waiting.seconds(text) for text in ("90", "90s", "15m", "24h", "7d")] == [90, 90, 900, 86400, 604800]
    for text in ("", "0", "1w", "-1s", "1.5h"):
        with pytest.raises(InputError):
            waiting.seconds(text)


def test_pauses() -> None:
    assert [waiting.pause_s(text) for text in ("2", "0.05")] == [2, 0.05]
    for text in ("", "0", "0.0", "-1", "1s", "nan"):
        with pytest.raises(InputError):
            waiting.pause_s(text)
