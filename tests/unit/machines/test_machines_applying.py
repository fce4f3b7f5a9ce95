"""The modes of ApplyConfiguration on a machine that runs."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from lab.machines.applying import _go_duration
from talos.api.errors import InvalidError, NotReadyError
from talos.api.results import Applied, ApplyMode
from talos.cluster import MachineSettings
from tests.unit.machines.emulated_rack import HOUR_S, Bench, eventually

pytestmark = pytest.mark.processes

LABELLED = MachineSettings(node_labels={"site.example/rack": "r1"})
NEEDS_REBOOT = MachineSettings(udev_rules=('SUBSYSTEM=="net"',))


def apply(bench: Bench, config: bytes, mode: ApplyMode, *, dry_run: bool = False, try_s: int | None = None) -> Applied:
    with bench.client("m1") as client:
        return client.apply_configuration(config, mode=mode, dry_run=dry_run, try_timeout_s=try_s)


def label(bench: Bench) -> str | None:
    return bench.cluster.nodes["cp"].labels.get("site.example/rack")


def test_what_is_live_reaches_the_node_without_a_reboot(running: Bench) -> None:
    boot = running.rack.machines["m1"].store.disks.boot_id
    config = running.control_plane("cp", settings=LABELLED)
    planned = apply(running, config, ApplyMode.AUTO, dry_run=True)
    assert planned.mode is ApplyMode.NO_REBOOT
    assert planned.details.startswith(
        "Dry run summary:\nApplied configuration without a reboot (skipped in dry-run).\nConfig diff:\n\n"
    )
    assert label(running) is None
    assert apply(running, config, ApplyMode.AUTO).mode is ApplyMode.NO_REBOOT
    eventually(lambda: label(running) == "r1")
    assert running.rack.machines["m1"].store.disks.boot_id == boot
    assert not apply(running, config, ApplyMode.AUTO, dry_run=True).changed


def test_what_needs_a_reboot_says_so_and_reboots(running: Bench) -> None:
    machine = running.rack.machines["m1"]
    boot = machine.store.disks.boot_id
    config = running.control_plane("cp", settings=NEEDS_REBOOT)
    planned = apply(running, config, ApplyMode.AUTO, dry_run=True)
    assert planned.mode is ApplyMode.REBOOT
    assert "Applied configuration with a reboot (skipped in dry-run)." in planned.details
    assert machine.store.disks.boot_id == boot
    applied = apply(running, config, ApplyMode.AUTO)
    assert applied.mode is ApplyMode.REBOOT
    assert applied.details.startswith("Applied configuration with a reboot: this config change can't be applied")
    eventually(lambda: machine.store.disks.boot_id != boot and machine.stage == "running")
    assert machine.config is not None
    assert machine.config.source == config


def test_no_reboot_refuses_what_needs_one(running: Bench) -> None:
    with pytest.raises(InvalidError, match="immediate mode"):
        apply(running, running.control_plane("cp", settings=NEEDS_REBOOT), ApplyMode.NO_REBOOT)


def test_staged_waits_for_the_next_boot(running: Bench) -> None:
    machine = running.rack.machines["m1"]
    applied = apply(running, running.control_plane("cp", settings=LABELLED), ApplyMode.STAGED)
    assert applied.details == "Staged configuration to be applied after the next reboot"
    assert label(running) is None
    with running.client("m1") as client:
        client.reboot()
    eventually(lambda: label(running) == "r1")
    assert machine.store.disks.boot_id


def test_try_reverts_by_itself(running: Bench, hour: threading.Event) -> None:
    applied = apply(running, running.control_plane("cp", settings=LABELLED), ApplyMode.TRY, try_s=int(HOUR_S))
    assert applied.details.endswith("in 'try' mode and will be automatically reverted back in 1h0m0s")
    eventually(lambda: label(running) == "r1")
    hour.set()
    eventually(lambda: label(running) is None)


def test_a_config_that_is_applied_ends_a_trial(running: Bench, hour: threading.Event) -> None:
    config = running.control_plane("cp", settings=LABELLED)
    apply(running, config, ApplyMode.TRY, try_s=int(HOUR_S))
    (trial,) = [thread for thread in threading.enumerate() if thread.name == "m1-job"]
    apply(running, config, ApplyMode.AUTO)
    eventually(lambda: label(running) == "r1")
    hour.set()
    trial.join()
    effective = running.rack.machines["m1"].config
    assert effective is not None
    assert effective.source == config


def test_reboot_mode_reboots_for_anything(running: Bench, hour: threading.Event) -> None:
    machine = running.rack.machines["m1"]
    boot = machine.store.disks.boot_id
    machine.speed = replace(machine.speed, going_down_s=HOUR_S)
    with running.client("m1") as client:
        client.apply_configuration(running.control_plane("cp"), mode=ApplyMode.REBOOT)
        with pytest.raises(NotReadyError, match="already applied and node is rebooting"):
            client.apply_configuration(running.control_plane("cp"), mode=ApplyMode.AUTO)
    hour.set()
    eventually(lambda: machine.store.disks.boot_id != boot and machine.stage == "running")


def test_a_config_without_the_base_document_is_refused_on_a_running_machine(running: Bench) -> None:
    with pytest.raises(InvalidError, match="doesn't contain v1alpha1"):
        apply(running, b"apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: x\n", ApplyMode.AUTO)


def test_the_config_on_disk_is_for_its_owner_alone(running: Bench) -> None:
    folder: Path = running.rack.machines["m1"].store.folder
    assert {path.name for path in folder.iterdir() if path.stat().st_mode & 0o077} <= {"console.log"}
    assert folder.stat().st_mode & 0o777 == 0o700
    secret = running.bundle.bootstrap_token
    assert secret not in (folder / "console.log").read_text()


@pytest.mark.parametrize(("seconds", "text"), [(60, "1m0s"), (1, "1s"), (90, "1m30s"), (3600, "1h0m0s")])
def test_durations_are_written_as_go_does(seconds: float, text: str) -> None:
    assert _go_duration(seconds) == text
