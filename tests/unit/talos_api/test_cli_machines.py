"""Bootstrap, health, upgrade, reboot and reset on machines that reboot, lose answers, and belong to others."""

from __future__ import annotations

import pytest

from talos.api import calls
from tests.unit.talos_api.command_runs import Command
from tests.unit.talos_api.scripted_machine import ScriptedMachine

IMAGE = f"factory.talos.dev/metal-installer/{'b' * 64}:v1.13.9"


def test_bootstrap_once(run: Command, machine: ScriptedMachine) -> None:
    machine.etcd, machine.busy = "Preparing", 2
    first = run("bootstrap", machine)
    assert (first.code, first.result["bootstrap"]) == (0, "done"), first.err
    assert "time is not in sync yet" in first.err
    assert run("bootstrap", machine).result["bootstrap"] == "before"
    assert len(machine.machine.asked(calls.BOOTSTRAP)) == 3


def test_bootstrap_whose_answer_is_lost_has_happened(run: Command, machine: ScriptedMachine) -> None:
    machine.etcd, machine.lost = "Preparing", {"Bootstrap"}
    assert run("bootstrap", machine).result["bootstrap"] == "before"
    assert len(machine.machine.asked(calls.BOOTSTRAP)) == 1


def test_a_replaced_control_plane_founds_no_second_cluster(run: Command, machine: ScriptedMachine) -> None:
    machine.etcd = "Preparing"
    with ScriptedMachine(configured=True).serving() as peer:
        peer.etcd = "Running"
        done = run("bootstrap", machine, "--peer", f"cp-2={peer.address}")
        assert (done.result["bootstrap"], done.result["where"]) == ("elsewhere", "cp-2")
    assert machine.machine.asked(calls.BOOTSTRAP) == []
    silent = run("bootstrap", machine, "--peer", f"cp-2={peer.address}", timeout="1s")
    assert silent.code == 4
    assert "cp-2" not in silent.out
    assert machine.machine.asked(calls.BOOTSTRAP) == []


@pytest.mark.slow
def test_health_waits_and_says_for_what(run: Command, machine: ScriptedMachine) -> None:
    machine.etcd = "Preparing"
    late = run("health", machine, "--etcd-members", "1", timeout="1s")
    assert late.code == 4
    assert "etcd is Preparing" in late.err
    machine.etcd = "Running"
    done = run("health", machine, "--etcd-members", "1")
    assert (done.code, done.result["healthy"], done.result["etcd_members"][0]["hostname"]) == (0, True, "cp-1")
    wrong = run("health", machine, "--etcd-members", "3", timeout="1s")
    assert wrong.code == 4
    assert "1 members instead of 3" in wrong.err


def test_status_in_both_states(run: Command, machine: ScriptedMachine, new_machine: ScriptedMachine) -> None:
    assert run("status", machine).result["boot_id"] == machine.boot_id
    shown = run("status", new_machine, "--insecure").result
    assert (shown["state"], shown["stage"], shown["version"]) == ("maintenance", "maintenance", "v1.13.8")


@pytest.mark.parametrize("legacy", [False, True], ids=["lifecycle", "legacy"])
def test_upgrade_ends_with_the_new_system_running(run: Command, machine: ScriptedMachine, legacy: bool) -> None:
    machine.legacy = legacy
    done = run("upgrade", machine, "--image", IMAGE)
    assert done.code == 0, done.err
    shown = [done.result[key] for key in ("change", "from", "version", "schematic", "boot_id")]
    assert shown == ["upgraded", "v1.13.8", "v1.13.9", "b" * 64, machine.boot_id]
    assert (run("upgrade", machine, "--image", IMAGE).result["change"], machine.boots) == ("none", 1)


def test_upgrade_without_reboot_and_then_one_reboot(run: Command, machine: ScriptedMachine) -> None:
    done = run("upgrade", machine, "--image", IMAGE, "--no-reboot")
    assert (done.result["change"], machine.boots) == ("installed", 0)
    options = ("--if-boot-id", done.result["boot_id"])
    assert run("reboot", machine, *options).result["rebooted"] is True
    assert run("reboot", machine, *options).result["rebooted"] is False
    assert (machine.version, machine.boots) == ("v1.13.9", 1)
    machine.legacy = True
    other = IMAGE.replace("v1.13.9", "v1.13.10")
    refused = run("upgrade", machine, "--image", other, "--no-reboot")
    assert (refused.code, machine.boots) == (3, 1)


def test_a_machine_that_fell_back_stops_the_roll_out(run: Command, machine: ScriptedMachine) -> None:
    machine.boots_installed = False
    done = run("upgrade", machine, "--image", IMAGE)
    assert (done.code, done.out, machine.boots) == (6, "", 1)
    assert "came back with v1.13.8" in done.err


@pytest.mark.parametrize("lost", ["Upgrade", "Reboot", "Pull"])
def test_upgrade_survives_lost_answers(run: Command, machine: ScriptedMachine, lost: str) -> None:
    machine.lost = {lost}
    done = run("upgrade", machine, "--image", IMAGE)
    assert (done.code, done.result["version"], machine.boots) == (0, "v1.13.9", 1), done.err


@pytest.mark.parametrize("image", ["factory.talos.dev/metal-installer", "x:latest", "x@sha256:aa"])
def test_an_image_names_its_version(run: Command, machine: ScriptedMachine, image: str) -> None:
    assert run("upgrade", machine, "--image", image).code == 2


def test_reboot_with_a_lost_answer_reboots_once(run: Command, machine: ScriptedMachine) -> None:
    machine.lost, machine.lingers_s = {"Reboot"}, 0.8
    done = run("reboot", machine)
    assert (done.code, done.result["boot_id"], machine.boots) == (0, machine.boot_id, 1), done.err
    assert len(machine.machine.asked(calls.REBOOT)) == 1


def test_reset_ends_in_maintenance_mode(run: Command, machine: ScriptedMachine) -> None:
    options = ("--wipe", "system-disk", "--partition", "STATE", "--partition", "EPHEMERAL")
    done = run("reset", machine, *options)
    assert (done.code, done.result["reset"], machine.configured) == (0, "done", False), done.err
    assert run("reset", machine, *options).result["reset"] == "before"
    assert len(machine.machine.asked(calls.RESET)) == 1
    assert machine.machine.asked(calls.RESET)[0].graceful


def test_a_reset_that_was_lost_is_ordered_again(run: Command, machine: ScriptedMachine) -> None:
    machine.erases = False
    done = run("reset", machine, "--wipe", "all")
    assert (done.code, done.result["reset"], machine.configured) == (0, "done", False), done.err
    assert len(machine.machine.asked(calls.RESET)) == 2


def test_reset_to_silence(run: Command, machine: ScriptedMachine) -> None:
    options = ("--wipe", "all", "--then", "shutdown", "--no-graceful")
    assert run("reset", machine, *options).result["reset"] == "done"
    assert run("reset", machine, *options, timeout="1s").code == 4
    dead = run("reset", machine, *options, "--if-unreachable", "done", timeout="1s")
    assert (dead.code, dead.result["reset"]) == (0, "unreachable")


def test_reset_leaves_machines_of_other_clusters_alone(run: Command) -> None:
    with ScriptedMachine("theirs", configured=True).serving() as theirs:
        done = run("reset", theirs, "--wipe", "all", "--if-unreachable", "done")
    assert done.code == 5
    assert theirs.machine.asked(calls.RESET) == []
