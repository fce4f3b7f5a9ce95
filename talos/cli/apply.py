"""`apply`: give a machine its config, whatever state it is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

from talos.api.errors import InvalidError, UntrustedError
from talos.api.results import Applied, ApplyMode
from talos.api.tls import FirstContact
from talos.cli import inputs, node_name
from talos.cli.boot_chain import refusal
from talos.cli.failures import CommandError, InputError, NotAllowedError
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import PASSING_STAGES, Contact, Reach, State, reach, wait_up
from talos.cli.waiting import PendingError, Watch, seconds

Change = Literal["none", "live", "reboot", "install", "refused"]

DESCRIPTION = """\
Give a machine its config, from stdin by default.

A machine of the talosconfig's cluster proves its identity by its certificate, and gets the config over mutual TLS. A
new machine, in maintenance mode, has a self-signed certificate: it is checked with the --fingerprint that its console
shows, or trusted with --insecure. It then installs itself and reboots, and the command waits until it answers with its
config.

The command first asks the machine what the config would change, so it sends nothing that is already in effect:
  none      the config is in effect
  live      takes effect at once
  reboot    takes effect after a reboot
  install   the machine has no config yet: it installs itself
  refused   the machine does not accept the config; `reason` states why

With --dry-run the command stops here. Otherwise --mode sets what is allowed:
  auto       live if possible, else with a reboot (drain the node first)
  no-reboot  live only; exit code 3 if it would need a reboot
  reboot     with a reboot, also if live is possible
  staged     takes effect at the next reboot, whenever that is
  try        live, and reverted after a minute unless applied again: for firewall and network

  python -m talos apply --address 10.0.0.11 --name hgx-1 --mode auto --fingerprint c29tZ... < hgx-1.yaml"""

_MODES = {
    "auto": ApplyMode.AUTO,
    "no-reboot": ApplyMode.NO_REBOOT,
    "reboot": ApplyMode.REBOOT,
    "staged": ApplyMode.STAGED,
    "try": ApplyMode.TRY,
}


class InstallFailedError(CommandError):
    """The machine took the config, and came back without it."""


@dataclass(frozen=True)
class Verdict:
    """What a config would do to the machine; `details` is redacted."""

    change: Change
    details: str = ""
    warnings: tuple[str, ...] = ()
    reason: str = ""
    fix: str = ""


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="50m", maintenance=True)
@click.option("--config", metavar="FILE", help="the machine config (stdin)")
@click.option("--mode", type=click.Choice(list(_MODES)), help="what is allowed; needed unless --dry-run")
@click.option("--dry-run", is_flag=True, help="only show what would change")
@click.option("--no-wait", is_flag=True, help="do not wait until the machine is up again")
@click.option("--only-new", is_flag=True, help="leave a machine alone that has a config of the cluster")
def command(
    options: MachineOptions, *, config: str | None, mode: str | None, dry_run: bool, no_wait: bool, only_new: bool
) -> int:
    """Apply or classify; prints one JSON object."""
    if not dry_run and not mode:
        raise InputError("apply: no --mode", fix=f"choose one of {', '.join(_MODES)}, or --dry-run")
    inputs.one_stdin((options.talosconfig, config))
    machine, text = reach(options), inputs.machine_config(config)
    watch = machine.watch(seconds(options.timeout))
    if dry_run or not mode:
        state, verdict = watch.until("for its verdict", lambda: _judged(machine, text, watch))
        _print(machine.name, state, verdict, applied=False)
        return 0
    if only_new and watch.until("for an answer", lambda: _is_ours(machine, watch)):
        _print(machine.name, "configured", Verdict("none"), applied=False)
        return 0
    applying = Applying(machine, text, mode, watch, waits=not no_wait)
    watch.until("to apply the config", applying.attempt)
    _print(machine.name, *applying.first, applied=applying.first[1].change != "none")
    return 0


def classify(contact: Contact, config: bytes) -> Verdict:
    """Ask the machine, by a dry run, what the config would do there."""
    if contact.state == "configured" and (stage := contact.client.machine_status().stage) in PASSING_STAGES:
        raise PendingError(f"it is {stage}")
    if other := node_name.refusal(contact, config):
        return Verdict("refused", reason=other[0], fix=other[1])
    try:
        answer = contact.client.apply_configuration(config, mode=ApplyMode.AUTO, dry_run=True)
    except InvalidError as error:
        return Verdict("refused", reason=error.cause, fix=error.fix)
    if refused := refusal(contact, config):
        return Verdict("refused", reason=refused[0], fix=refused[1])
    return Verdict(_change(contact, answer), details=answer.details, warnings=answer.warnings)


def _change(contact: Contact, answer: Applied) -> Change:
    if contact.state == "maintenance":
        return "install"
    if not answer.changed:
        return "none"
    return "reboot" if answer.mode is ApplyMode.REBOOT else "live"


def _judged(machine: Reach, config: bytes, watch: Watch) -> tuple[State, Verdict]:
    with machine.contact(watch) as contact:
        return contact.state, classify(contact, config)


def _is_ours(machine: Reach, watch: Watch) -> bool:
    with machine.contact(watch) as contact:
        return contact.state == "configured"


class Applying:
    """Applying with repeats: each attempt looks at the machine first, for the one before may have had its effect."""

    first: tuple[State, Verdict]

    def __init__(self, machine: Reach, config: bytes, mode: str, watch: Watch, *, waits: bool) -> None:
        self._machine, self._config, self._asked = machine, config, mode
        self._watch, self._waits = watch, waits
        self._boot_before = ""
        self._key_before = ""
        self._left = False
        self._untrusted = ""

    def attempt(self) -> None:
        with self._machine.contact(self._watch) as contact:
            verdict = classify(contact, self._config)
            if not hasattr(self, "first"):
                self.first = contact.state, verdict
            mode = _mode(self._machine.name, verdict, self._asked)
            if verdict.change != "none":
                if mode is ApplyMode.REBOOT:
                    self._boot_before = contact.client.boot_id()
                self._key_before = contact.client.shown_key
                self._watch.say(f"applying the config ({verdict.change})")
                contact.client.apply_configuration(self._config, mode=mode)
        if not self._waits:
            return
        if verdict.change == "install" and self._machine.ours is not None:
            self._watch.until("to install and boot", self._installed)
        if self._boot_before:
            self._watch.until("to reboot", lambda: wait_up(self._machine, self._boot_before))

    def _installed(self) -> None:
        """Return when the machine has booted its config; InstallFailedError when it has rebooted without.

        That it did not answer means nothing, and a quick reboot may go unseen; but a new key shows it.
        """
        if self._is_up():
            return
        # Only a question is sent, and a machine that rebooted has another key than the one that was pinned.
        key = self._machine.maintenance_key(FirstContact())
        if not key:
            self._left = True
            # A machine that has booted may also be one whose clock is wrong; only the certificate shows it.
            raise PendingError(f"it is installing, or its certificate is not accepted: {self._untrusted}")
        if self._left or key != self._key_before:
            raise InstallFailedError(
                f"{self._machine.name}: came back in maintenance mode: the install did not succeed",
                fix="look at the console for the installer image and the install disk, then run it again",
            )
        raise PendingError("it is still in maintenance mode")

    def _is_up(self) -> bool:
        """Whether it has booted its config; False while its certificate is not of the cluster."""
        try:
            wait_up(self._machine)
        except UntrustedError as error:
            self._untrusted = error.cause
            return False
        return True


def _mode(name: str, verdict: Verdict, asked: str) -> ApplyMode:
    """The mode for the wire: what was classified and no more, so that a machine never reboots unannounced."""
    if verdict.change == "refused":
        raise NotAllowedError(f"{name}: the machine refuses the config: {verdict.reason}", fix=verdict.fix)
    if verdict.change == "install":
        if asked in {"staged", "try"}:
            raise NotAllowedError(
                f"{name}: it has no config yet, so --mode {asked} means nothing", fix="use --mode auto"
            )
        return ApplyMode.AUTO
    if asked == "no-reboot" and verdict.change == "reboot":
        raise NotAllowedError(
            f"{name}: the change needs a reboot, which --mode no-reboot does not allow",
            fix="drain the node and use --mode auto, or --mode staged for the next reboot",
        )
    if asked == "auto":
        return ApplyMode.REBOOT if verdict.change == "reboot" else ApplyMode.NO_REBOOT
    return _MODES[asked]


def _print(name: str, state: State, verdict: Verdict, *, applied: bool) -> None:
    result: dict[str, object] = {"node": name, "state": state, "change": verdict.change, "applied": applied}
    if verdict.change == "refused":
        result |= {"reason": verdict.reason, "fix": verdict.fix}
    inputs.print_result({**result, "details": verdict.details, "warnings": list(verdict.warnings)})
