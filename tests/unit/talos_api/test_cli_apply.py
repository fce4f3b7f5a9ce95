"""`apply` on machines that reboot, lose answers, refuse, fail to install, and belong to others."""

from __future__ import annotations

import base64

import pytest

from talos.api import calls
from talos.api.errors import TooSlowError
from talos.api.results import ApplyMode
from talos.api.tls import Trust
from talos.cli import apply
from talos.cli.reaching import Contact, Reach
from tests.unit.machines.emulated_rack import eventually
from tests.unit.talos_api.command_runs import CANARY, Command
from tests.unit.talos_api.machine_certificates import spki_fingerprint
from tests.unit.talos_api.scripted_machine import ScriptedMachine

LIVE = f"version: v1alpha1\nmachine:\n  token: {CANARY}-token\n"
REBOOT = f"{LIVE}  sysctls: {{reboot: '1'}}\n"


def changes(machine: ScriptedMachine) -> list[int]:
    return [request.mode for request in machine.machine.asked(calls.APPLY_CONFIGURATION) if not request.dry_run]


def pin(machine: ScriptedMachine) -> str:
    assert machine.machine.identity
    return spki_fingerprint(machine.machine.identity)


def test_apply_installs_a_new_machine_by_its_fingerprint(run: Command, new_machine: ScriptedMachine) -> None:
    options = ("--mode", "auto", "--fingerprint", pin(new_machine))
    done = run("apply", new_machine, *options, config=LIVE)
    assert done.code == 0, done.err
    shown = {key: done.result[key] for key in ("node", "state", "change", "applied")}
    assert shown == {"node": "hgx-1", "state": "maintenance", "change": "install", "applied": True}
    assert (new_machine.configured, new_machine.boots, new_machine.stage) == (True, 1, "running")
    again = run("apply", new_machine, *options, config=LIVE)
    assert (again.result["state"], again.result["change"], again.result["applied"]) == ("configured", "none", False)
    assert len(changes(new_machine)) == 1


def test_apply_goes_on_where_an_interrupted_one_stopped(run: Command, new_machine: ScriptedMachine) -> None:
    new_machine.lost = {"ApplyConfiguration"}
    done = run("apply", new_machine, "--insecure", "--mode", "auto", config=LIVE)
    assert done.code == 0, done.err
    assert (done.result["change"], done.result["applied"]) == ("install", True)
    assert (new_machine.lost, new_machine.stage, new_machine.boots) == (set(), "running", 1)
    assert len(changes(new_machine)) == 1


def test_apply_waits_for_a_machine_that_goes_away_between_two_looks(
    run: Command, new_machine: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_machine.may_go_down.clear()
    plain, looks = Reach.maintenance_key, []

    def look(reach: Reach, trust: Trust) -> str:
        looks.append(trust)
        new_machine.may_go_down.set()
        if len(looks) == 1:
            eventually(lambda: new_machine.machine.identity is None)
        return plain(reach, trust)

    new_machine.down_s = 0.5
    monkeypatch.setattr(Reach, "maintenance_key", look)
    done = run("apply", new_machine, "--mode", "auto", "--fingerprint", pin(new_machine), config=LIVE)
    assert (done.code, new_machine.boots, len(changes(new_machine))) == (0, 1, 1), done.err
    assert looks


def test_apply_finds_its_config_on_a_machine_that_boots_it_between_two_looks(
    run: Command, new_machine: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint, plain = pin(new_machine), Reach._look_unconfigured

    def look(reach: Reach, trust: Trust) -> Contact:
        new_machine.config, new_machine.configured = LIVE.encode(), True
        new_machine._up()
        return plain(reach, trust)

    monkeypatch.setattr(Reach, "_look_unconfigured", look)
    done = run("apply", new_machine, "--mode", "auto", "--fingerprint", fingerprint, config=LIVE)
    assert (done.code, done.result["state"], done.result["change"]) == (0, "configured", "none"), done.err


def test_apply_looks_again_at_a_machine_that_leaves_maintenance_mode_under_it(
    run: Command, new_machine: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprint, plain, seen = pin(new_machine), apply.classify, []

    def classify(contact: Contact, config: bytes) -> apply.Verdict:
        seen.append(contact.state)
        if len(seen) == 1:
            new_machine.config, new_machine.configured = LIVE.encode(), True
            new_machine._up()
        return plain(contact, config)

    monkeypatch.setattr(apply, "classify", classify)
    done = run("apply", new_machine, "--mode", "auto", "--fingerprint", fingerprint, config=LIVE)
    assert (done.code, done.result["change"], seen) == (0, "none", ["maintenance", "configured"]), done.err
    assert changes(new_machine) == []


def test_an_install_that_fails_is_reported_as_soon_as_it_shows(run: Command, new_machine: ScriptedMachine) -> None:
    new_machine.installs = False
    done = run("apply", new_machine, "--insecure", "--mode", "auto", config=LIVE)
    assert (done.code, done.out, new_machine.boots) == (6, "", 1)
    assert "hgx-1: came back in maintenance mode" in done.err
    new_machine.installs = True
    assert run("apply", new_machine, "--insecure", "--mode", "auto", config=LIVE).code == 0


def test_an_install_that_fails_between_two_looks_is_reported_by_the_new_key(
    run: Command, new_machine: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_machine.installs, plain = False, apply.Applying._installed

    def installed(applying: apply.Applying) -> None:
        eventually(lambda: new_machine.boots == 1 and new_machine.stage == "maintenance")
        plain(applying)

    monkeypatch.setattr(apply.Applying, "_installed", installed)
    done = run("apply", new_machine, "--insecure", "--mode", "auto", config=LIVE)
    assert (done.code, new_machine.boots) == (6, 1), done.err


def test_a_machine_that_did_not_answer_has_not_failed_to_install(
    run: Command, new_machine: ScriptedMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_machine.may_go_down.clear()
    plain, looks = Reach.maintenance_key, []

    def look(reach: Reach, trust: Trust) -> str:
        looks.append(trust)
        if len(looks) == 1:
            raise TooSlowError(node="hgx-1", call="Get", cause="no answer within 10 s")
        new_machine.stage = "maintenance" if len(looks) == 2 else "rebooting"
        if len(looks) == 3:
            new_machine.may_go_down.set()
        return plain(reach, trust)

    monkeypatch.setattr(Reach, "maintenance_key", look)
    done = run("apply", new_machine, "--insecure", "--mode", "auto", config=LIVE)
    assert (done.code, new_machine.boots) == (0, 1), done.err
    assert "it is still in maintenance mode" in done.err


def test_apply_sends_nothing_to_another_key(run: Command, new_machine: ScriptedMachine) -> None:
    other = base64.b64encode(b"x" * 32).decode()
    done = run("apply", new_machine, "--mode", "auto", "--fingerprint", other, config=LIVE)
    assert done.code == 5
    assert "console" in done.err
    assert new_machine.machine.seen == []


def test_apply_needs_a_way_to_know_a_new_machine(run: Command, new_machine: ScriptedMachine) -> None:
    done = run("apply", new_machine, "--mode", "auto", config=LIVE)
    assert (done.code, done.out) == (5, "")
    assert not changes(new_machine)


def test_apply_leaves_machines_of_other_clusters_alone(run: Command) -> None:
    with ScriptedMachine("theirs", configured=True).serving() as theirs:
        done = run("apply", theirs, "--mode", "auto", "--insecure", config=LIVE)
    assert done.code == 5
    assert "not of the talosconfig's cluster" in done.err
    assert theirs.machine.seen == []


@pytest.mark.parametrize(
    ("config", "change"), [("version: v1alpha1\n", "none"), (LIVE, "live"), (REBOOT, "reboot")], ids=lambda v: v[:6]
)
def test_dry_run_says_what_would_change(run: Command, machine: ScriptedMachine, config: str, change: str) -> None:
    done = run("apply", machine, "--dry-run", config=config)
    assert (done.code, done.result["change"], done.result["applied"]) == (0, change, False)
    assert (changes(machine), machine.boots) == ([], 0)


def test_a_refusal_is_a_verdict_of_a_dry_run_and_a_failure_of_an_apply(run: Command, machine: ScriptedMachine) -> None:
    machine.refuses = f"unknown key near {CANARY}-token"
    dry = run("apply", machine, "--dry-run", config=LIVE)
    assert (dry.code, dry.result["change"]) == (0, "refused")
    assert "unknown key" in dry.result["reason"]
    applied = run("apply", machine, "--mode", "auto", config=LIVE)
    assert (applied.code, applied.out) == (3, "")
    assert "unknown key" in applied.err


@pytest.mark.parametrize(
    ("asked", "config", "sent", "boots"),
    [
        ("auto", LIVE, ApplyMode.NO_REBOOT, 0),
        ("auto", REBOOT, ApplyMode.REBOOT, 1),
        ("no-reboot", LIVE, ApplyMode.NO_REBOOT, 0),
        ("reboot", LIVE, ApplyMode.REBOOT, 1),
        ("staged", REBOOT, ApplyMode.STAGED, 0),
        ("try", LIVE, ApplyMode.TRY, 0),
    ],
)
def test_the_mode_sent_is_what_was_classified(
    run: Command, machine: ScriptedMachine, asked: str, config: str, sent: ApplyMode, boots: int
) -> None:
    before = machine.boot_id
    assert run("apply", machine, "--mode", asked, config=config).code == 0
    assert (changes(machine), machine.boots) == ([sent], boots)
    assert (machine.boot_id != before) == bool(boots)
    assert machine.stage == "running"


def test_no_reboot_means_no_reboot(run: Command, machine: ScriptedMachine) -> None:
    done = run("apply", machine, "--mode", "no-reboot", config=REBOOT)
    assert done.code == 3
    assert "drain" in done.err
    assert changes(machine) == []


def test_a_reboot_whose_order_lost_its_answer_is_waited_for(run: Command, machine: ScriptedMachine) -> None:
    machine.busy, machine.lost = 1, {"ApplyConfiguration"}  # another apply runs; then ours is lost
    done = run("apply", machine, "--mode", "auto", config=REBOOT)
    assert (done.code, done.result["change"], done.result["applied"]) == (0, "reboot", True)
    assert (machine.lost, machine.boots, machine.stage) == (set(), 1, "running")
