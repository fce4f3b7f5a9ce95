"""The commands, one after the other as `up` runs them, against the lab's emulated machines."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from talos.cli.main import main
from talos.cluster import MachineSettings
from talos.secrets import talosconfig
from tests.unit.machines.emulated_rack import Bench, new_bench

pytestmark = [pytest.mark.processes, pytest.mark.row("000.09", "000.11", "opening 4")]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = new_bench(tmp_path / "machines", "infra", "hgx-h200")
    credentials = talosconfig.issue(made.bundle, context="bench", endpoints=())
    monkeypatch.setenv("TALOSCONFIG_TEXT", credentials.render())
    with made.rack:
        yield made


class Site:
    """Runs commands on the rack's machines."""

    def __init__(self, bench: Bench, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.bench, self._capsys, self._folder = bench, capsys, folder

    def __call__(self, command: str, name: str, *options: str, config: bytes | None = None, code: int = 0) -> Any:
        machine = self.bench.rack.machines[name]
        argv = [command, "--address", f"{machine.address}:{machine.spec.port}", "--name", name, "--timeout", "60s"]
        argv += ["--poll", "0.02"]
        if config is not None:
            (self._folder / "config").write_bytes(config)
            argv += ["--config", str(self._folder / "config")]
        ended = main([*argv, *options])
        shown = self._capsys.readouterr()
        assert self.bench.bundle.trustd_token not in shown.out + shown.err
        assert ended == code, shown.err
        return json.loads(shown.out) if shown.out.startswith("{") else shown.out


def test_a_rack_from_maintenance_mode_to_erased(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = Site(bench, capsys, tmp_path)
    plane, worker = bench.control_plane("cp"), bench.hgx("gpu")
    auto = ("--mode", "auto", "--insecure")

    assert run("status", "m2", "--insecure")["state"] == "maintenance"
    assert run("apply", "m1", "--dry-run", "--insecure", config=plane)["change"] == "install"
    for name, config in (("m1", plane), ("m2", worker)):
        applied = run("apply", name, *auto, config=config)
        assert (applied["change"], applied["applied"]) == ("install", True)
        assert run("apply", name, *auto, config=config)["change"] == "none"

    assert run("bootstrap", "m1")["bootstrap"] == "done"
    assert run("bootstrap", "m1")["bootstrap"] == "before"
    assert run("kubeconfig", "m1").startswith("apiVersion: v1")
    assert run("health", "m1", "--etcd-members", "1")["healthy"]
    assert run("health", "m2")["healthy"]
    assert run("etcd-snapshot", "m1", "--output", str(tmp_path / "snapshot"))["bytes"] > 32
    assert "os:reader" not in run("client-cert", "m1")

    live = bench.worker("gpu", settings=MachineSettings(node_labels={"example.org/rack": "r1"}), image=bench.image)
    verdict = run("apply", "m2", "--dry-run", config=live)
    assert verdict["change"] in {"live", "reboot"}
    before = run("status", "m2")["boot_id"]
    assert run("apply", "m2", "--mode", "auto", config=live)["applied"]
    assert run("apply", "m2", "--mode", "auto", config=live)["change"] == "none"
    assert (run("status", "m2")["boot_id"] != before) == (verdict["change"] == "reboot")
    run("apply", "m2", "--mode", "auto", config=b"wrong: true\nmachine: {}\n", code=3)

    installed = run("upgrade", "m2", "--image", bench.image, "--no-reboot")
    assert installed["change"] == "installed"
    assert run("reboot", "m2", "--if-boot-id", installed["boot_id"])["rebooted"]
    assert run("upgrade", "m2", "--image", bench.image)["change"] == "none"
    assert run("status", "m2")["schematic"] in bench.image

    erase = ("--wipe", "system-disk", "--partition", "STATE", "--partition", "EPHEMERAL")
    assert run("reset", "m2", *erase)["reset"] == "done"
    assert run("reset", "m2", *erase)["reset"] == "before"
    assert run("apply", "m2", *auto, config=worker)["change"] == "install"


def test_the_secrets_come_back_out_of_a_control_plane(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a lost state held of the cluster is in each control plane, for an administrator alone."""
    run = Site(bench, capsys, tmp_path)
    run("apply", "m1", "--mode", "auto", "--insecure", config=bench.control_plane("cp"))
    config, bundle = tmp_path / "cp.yaml", tmp_path / "secrets.yaml"
    run("machine-config", "m1", "--output", str(config))
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert config.read_bytes() == bench.control_plane("cp")
    assert main(["secrets", "--from-config", str(config), "--output", str(bundle)]) == 0
    assert bundle.read_text() == bench.bundle.export()
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600

    reader = talosconfig.issue(bench.bundle, context="bench", endpoints=(), role="os:reader")
    monkeypatch.setenv("TALOSCONFIG_TEXT", reader.render())
    run("machine-config", "m1", "--output", str(tmp_path / "refused.yaml"), code=5)
    assert not (tmp_path / "refused.yaml").exists()
