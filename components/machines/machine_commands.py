"""Command lines of `python -m talos` and what they are about: pure text, without a secret in it.

Secrets reach the commands by environment or stdin alone. Paths are relative to the project, so that a state made in one
checkout goes on in another.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

_PROGRAM = (".venv/bin/python", "-m", "talos")
_LIFETIME = "365d"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long commands may take, in seconds. None is the command's own limit, which its --help names."""

    call_s: int | None = None
    """Of each single call of a machine; each kind of call has a limit of its own too."""
    plan_s: int | None = None
    install_s: int | None = None
    bootstrap_s: int | None = None
    kubeconfig_s: int | None = None
    health_s: int | None = None
    """Of a machine that was rolled, to be well again."""
    roll_beyond_drain_s: int = 3600
    """Installing, draining and coming back well each have their own limit; this one is beyond their sum."""
    leave_beyond_drain_s: int = 1800


LIMITS = Limits()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One machine, without any secret."""

    name: str
    address: str
    is_control_plane: bool
    image: str
    """Installer of its schematic for the Talos version."""
    schematic_id: str
    schematic: str
    """The schematic's canonical text."""
    nvswitch: bool
    """Whether its GPUs hang on NVSwitches, which need the fabric manager."""
    fingerprint: str | None = None
    replacement: int = 0
    dead: bool = False


def talos(*words: str) -> str:
    """A line of `python -m talos`."""
    return shlex.join([*_PROGRAM, *words])


def secrets(imported: str | None) -> str:
    """Prints a secrets bundle: a new one, or that of a file."""
    return talos("secrets", *(["--import", imported] if imported else []))


def talosconfig(context: str, control_planes: Sequence[Machine]) -> str:
    """Prints an administrator's talosconfig."""
    endpoints = [word for machine in control_planes for word in ("--endpoint", machine.address)]
    return talos("talosconfig", "--context", context, "--role", "os:admin", "--lifetime", _LIFETIME, *endpoints)


def install(machine: Machine, limits: Limits = LIMITS) -> str:
    """Installs a machine that is in maintenance mode; nothing for one that will not answer."""
    if machine.dead:
        return "true"
    waits = _within(limits, limits.install_s)
    return talos("apply", *_of(machine), *_first_contact(machine), "--mode", "auto", "--only-new", *waits)


def plan_all(at_once: int) -> str:
    """Reports for each machine on stdin what `roll` would do."""
    return talos("plan-all", "--at-once", str(at_once))


def plan_entry(machine: Machine, config: str, limits: Limits = LIMITS) -> dict[str, object]:
    """A machine on the stdin of `plan_all`; without its config it is asked for its state alone."""
    waits = _within(limits, limits.plan_s)
    options = [*_of(machine), *_first_contact(machine), "--image", machine.image, *waits]
    return {"options": options, "config": config}


def roll(machine: Machine, limits: Limits = LIMITS, *, drain_timeout_s: int) -> str:
    """Brings a machine of the cluster to its config and image; one that will not answer out of it."""
    if machine.dead:
        return leave(machine, limits, drain_timeout_s=drain_timeout_s)
    drain = ("--drain-timeout", f"{drain_timeout_s}s")
    waits = _within(limits, drain_timeout_s + limits.roll_beyond_drain_s)
    health = ("--health-timeout", f"{limits.health_s}s") if limits.health_s else ()
    contact = _first_contact(machine)
    return talos("roll", *_of(machine), *contact, "--image", machine.image, *drain, *waits, *health)


def leave(machine: Machine, limits: Limits = LIMITS, *, drain_timeout_s: int) -> str:
    """Takes a machine out of the cluster."""
    drain = ("--drain-timeout", f"{drain_timeout_s}s")
    waits = _within(limits, drain_timeout_s + limits.leave_beyond_drain_s)
    return talos("leave", *_of(machine), *(["--dead"] if machine.dead else []), *drain, *waits)


def erase(machine: Machine) -> str:
    """Erases a machine that may never have become a node."""
    return "true" if machine.dead else talos("leave", *_of(machine))


def bootstrap(control_planes: Sequence[Machine], limits: Limits = LIMITS) -> str:
    """Founds the cluster on the first control plane that is not dead, unless it exists."""
    first, *others = _living(control_planes)
    peers = [word for peer in others for word in ("--peer", f"{peer.name}={peer.address}")]
    return talos("bootstrap", *_of(first), *peers, *_within(limits, limits.bootstrap_s))


def kubeconfig(control_planes: Sequence[Machine], limits: Limits = LIMITS) -> str:
    """Prints an administrator's kubeconfig."""
    return talos("kubeconfig", *_of(_living(control_planes)[0]), *_within(limits, limits.kubeconfig_s))


def leftovers() -> str:
    """Deletes what the last run read on stdin and this one does not."""
    return talos("leftovers")


def post_schematic(factory: str) -> str:
    """Makes the factory know the schematic on stdin."""
    return talos("factory", "post", "--factory", factory)


def check_schematic(machine: Machine, factory: str, talos_version: str) -> str:
    """Checks the schematic on stdin against the factory's list; prints nothing where no factory answers."""
    switch = ["--nvswitch"] if machine.nvswitch else []
    check = talos("factory", "check", "--factory", factory, "--talos-version", talos_version, *switch)
    return f"{check} 2>&1 || true"


def _living(control_planes: Sequence[Machine]) -> list[Machine]:
    """Those that answer; a site whose control planes are all dead is refused before."""
    return [machine for machine in control_planes if not machine.dead]


def _of(machine: Machine) -> tuple[str, ...]:
    return ("--address", machine.address, "--name", machine.name)


def _within(limits: Limits, seconds: int | None) -> tuple[str, ...]:
    whole = ("--timeout", f"{seconds}s") if seconds else ()
    return (*whole, *(("--call-timeout", f"{limits.call_s}s") if limits.call_s else ()))


def _first_contact(machine: Machine) -> tuple[str, ...]:
    return ("--fingerprint", machine.fingerprint) if machine.fingerprint else ("--insecure",)
