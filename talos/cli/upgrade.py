"""`upgrade`: another Talos version or schematic on a machine."""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

from floor.releases import between
from talos.api.client import MachineClient
from talos.api.errors import NotOfferedError
from talos.api.results import RebootMode
from talos.cli import inputs
from talos.cli.boot_chain import is_signed
from talos.cli.failures import CommandError, InputError, NotAllowedError
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import PASSING_STAGES, Reach, reach, wait_up
from talos.cli.waiting import PendingError, Watch, seconds

DESCRIPTION = """\
Bring a machine to the Talos version and schematic of an installer image. Does nothing if it already runs them.

  1. the machine pulls the image                               (repeatable, changes nothing at runtime)
  2. the installer writes it to the slot that boots next       (repeatable)
  3. the machine reboots, which a new boot id shows            (left out with --no-reboot)
  4. it must come back with that version and schematic; exit code 6 if it fell back to the old slot

The caller must drain the node: run with --no-reboot, drain, then `reboot --if-boot-id ID` with the id that was
printed, or run the same upgrade again. Machines older than Talos 1.13 have one call that installs and reboots; it is
used if the machine does not offer the new ones, or with --method legacy.

`change` in the result: none, installed (with --no-reboot), upgraded.

  python -m talos upgrade --address 10.0.0.11 --image factory.talos.dev/metal-installer/3765...4ba:v1.13.9"""

_REFERENCE = re.compile(
    r"(?:[^\s@]+/)?(?P<last>[^\s/@:]+):(?P<version>v\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)(?:@sha256:[0-9a-f]{64})?"
)
_SCHEMATIC = re.compile(r"[0-9a-f]{64}")
_REBOOT_MODES = {"default": RebootMode.DEFAULT, "powercycle": RebootMode.POWERCYCLE}


class FellBackError(CommandError):
    """The machine rebooted and runs something else than was installed."""


@dataclass(frozen=True)
class Target:
    """What an installer image leaves on the machine; `schematic` is empty where the reference has none."""

    image: str
    version: str
    schematic: str
    signed: bool = False
    """Whether it is started by Secure Boot."""

    @classmethod
    def parse(cls, image: str) -> Target:
        """From a reference; InputError where it does not name a version."""
        match = _REFERENCE.fullmatch(image)
        if not match:
            raise InputError(
                f"image: got {image!r}, allowed REGISTRY/PATH:vX.Y.Z", fix="name the Talos version as the tag"
            )
        schematic = match["last"] if _SCHEMATIC.fullmatch(match["last"]) else ""
        return cls(image, match["version"], schematic, is_signed(image))


@dataclass(frozen=True)
class Running:
    """What the machine runs."""

    version: str
    schematic: str
    signed: bool | None = None
    """None where its Talos does not report it."""

    def is_target(self, target: Target) -> bool:
        """Whether nothing is left to do."""
        system = self.version == target.version and target.schematic in {"", self.schematic}
        return system and self.signed in {None, target.signed}

    def __str__(self) -> str:
        """For messages."""
        return f"{self.version} of schematic {self.schematic[:12] or 'unknown'}"


@click.command(cls=Command, help=DESCRIPTION)
@machine_options(timeout="45m")
@click.option("--image", required=True, metavar="REF", help="installer image, with the version as its tag")
@click.option("--method", type=click.Choice(["auto", "lifecycle", "legacy"]), default="auto", help="which calls to use")
@click.option("--reboot-mode", type=click.Choice(list(_REBOOT_MODES)), default="default", help="how to restart")
@click.option("--no-reboot", is_flag=True, help="install only; it takes effect at the next reboot")
def command(options: MachineOptions, *, image: str, method: str, reboot_mode: str, no_reboot: bool) -> int:
    """Upgrade; prints one JSON object."""
    machine, target = reach(options), Target.parse(image)
    watch = machine.watch(seconds(options.timeout))
    upgrading = _Upgrading(machine, target, watch, method, _REBOOT_MODES[reboot_mode], reboots=not no_reboot)
    watch.until("to upgrade", upgrading.attempt)
    inputs.print_result(upgrading.result)
    return 0


class _Upgrading:
    """An upgrade with repeats: each attempt looks first at what the machine runs."""

    def __init__(
        self, machine: Reach, target: Target, watch: Watch, method: str, reboot_mode: RebootMode, *, reboots: bool
    ) -> None:
        self._machine, self._target, self._watch = machine, target, watch
        self._method, self._reboots, self._reboot_mode = method, reboots, reboot_mode
        self._before: Running | None = None
        self._boot_before = ""
        self.result: dict[str, object] = {}

    def attempt(self) -> None:
        with self._machine.configured() as client:
            # In this order: a reboot in between shows as done, never as a machine that fell back or needs another.
            stage, boot_id, now = client.machine_status().stage, client.boot_id(), running(client)
            self._before = self._before or now
            if now.is_target(self._target):
                self._finish("none" if now == self._before else "upgraded", now, client.boot_id())
                return
            if self._boot_before and boot_id != self._boot_before:
                raise fell_back(self._machine.name, now, self._target)
            if stage in PASSING_STAGES:
                raise PendingError(f"it is {stage}")
            require_no_minor_left_out(self._machine.name, now, self._target)
            if not self._install(client, boot_id):
                self._finish("installed", now, boot_id)
                return
        boot_id = self._watch.until("to reboot", lambda: wait_up(self._machine, self._boot_before))
        with self._machine.configured() as client:
            now = running(client)
        if not now.is_target(self._target):
            raise fell_back(self._machine.name, now, self._target)
        self._finish("upgraded", now, boot_id)

    def _install(self, client: MachineClient, boot_id: str) -> bool:
        """Whether the machine reboots now."""
        if self._method != "legacy":
            try:
                self._watch.say(f"pulling {self._target.image}")
                client.pull_image(self._target.image, on_progress=self._watch.say)
                self._watch.say("installing")
                client.install_upgrade(self._target.image, on_message=self._watch.say)
            except NotOfferedError:
                if self._method == "lifecycle":
                    raise
            else:
                if self._reboots:
                    self._boot_before = boot_id
                    client.reboot(mode=self._reboot_mode)
                return self._reboots
        if not self._reboots:
            raise NotAllowedError(
                f"{self._machine.name}: its Talos installs and reboots in one call, so --no-reboot cannot be",
                fix="drain the node first and leave --no-reboot out",
            )
        self._watch.say("installing and rebooting, in one call")
        self._boot_before = boot_id
        client.upgrade_legacy(self._target.image, reboot=self._reboot_mode)
        return True

    def _finish(self, change: str, running: Running, boot_id: str) -> None:
        assert self._before is not None  # noqa: S101 - set by the attempt that calls this
        self.result = {
            "node": self._machine.name,
            "change": change,
            "from": self._before.version,
            "version": running.version,
            "schematic": running.schematic,
            "boot_id": boot_id,
        }


def difference(now: Running, target: Target) -> str:
    """What a machine would leave and get, for people; empty where nothing is left to do."""
    if now.is_target(target):
        return ""
    if now.version != target.version:
        return f"Talos {now.version} becomes {target.version}"
    if target.schematic in {"", now.schematic}:
        return "its unsigned system becomes the signed one" if target.signed else "its signed system becomes unsigned"
    return f"schematic {now.schematic[:12] or 'unknown'} becomes {target.schematic[:12]}"


def require_no_minor_left_out(name: str, now: Running, target: Target) -> None:
    """NotAllowedError for a step over a minor version, in either direction.

    Talos migrates what its versions store differently, and tests that between adjacent minor versions alone
    (docs.siderolabs.com/talos/v1.13, upgrading-talos).
    """
    if skipped := between(now.version, target.version):
        raise NotAllowedError(
            f"{name}: Talos {now.version} does not become {target.version} in one step; one minor version at a time",
            fix=f"go to the newest {skipped} first, by `talosctl upgrade` or a checkout that pins it",
        )


def running(client: MachineClient) -> Running:
    """What the machine runs now."""
    schematic = next((extension.version for extension in client.extensions() if extension.name == "schematic"), "")
    state = client.boot_state()
    return Running(client.version().tag, schematic, state.is_signed if state else None)


def fell_back(name: str, now: Running, target: Target) -> FellBackError:
    """The error for a machine that rebooted into something else."""
    return FellBackError(
        f"{name}: came back with {now}, not with {target.version} of {target.schematic[:12] or 'the image'}",
        fix="the new system did not boot, so the machine took the old slot: look at its console and "
        "`talosctl dmesg`; go on with no other machine before this one is understood",
    )
