"""The command line: its commands, and the exit code of the process."""

from __future__ import annotations

import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn

from floor import command_line
from talos.cli.failures import Exit, exit_for
from talos.cli.options import TalosGroup

_DESCRIPTION = """\
Brings machines into a state, one machine and one command at a time: what `pulumi up` runs, and what a person may run
just as well. A command looks at the machine first and does only what is missing, so it may be run twice, and after an
interruption. Results are JSON on stdout, progress and errors are text on stderr.

a new cluster, from machines in maintenance mode:
  secrets     once
  apply       each control plane, then each worker
  bootstrap   one control plane
  kubeconfig  from a control plane
  health      each machine

a cluster that runs, one machine after the other:
  plan        what a config and an image would do to a machine
  plan-all    the same of several machines
  roll        bring a machine to them: drained where it must reboot, and well again afterwards
  leave       drain a machine, erase it, and forget its node"""

_COMMANDS = {
    "secrets": (
        "talos.cli.bundle:make_secrets",
        "make a new cluster's secrets, or check and print those of one that exists, also out of a machine config",
    ),
    "talosconfig": (
        "talos.cli.bundle:issue_talosconfig",
        "issue a talosconfig from the secrets bundle, without asking any machine",
    ),
    "plan": ("talos.cli.planning:command", "show what a config and an image would do to a machine"),
    "plan-all": ("talos.cli.planning_all:command", "show what configs and images would do to several machines"),
    "apply": ("talos.cli.apply:command", "give a machine its config, or show what that would change"),
    "bootstrap": ("talos.cli.bootstrap:command", "start the cluster's first control plane, once"),
    "kubeconfig": ("talos.cli.credentials:kubeconfig", "get an administrator's kubeconfig"),
    "health": ("talos.cli.health:command", "wait until a machine is healthy"),
    "status": ("talos.cli.health:status", "show what a machine is and runs"),
    "roll": (
        "talos.cli.rolling:command",
        "bring a machine of a cluster to its config and image, drained if it must reboot, and leave it healthy",
    ),
    "upgrade": ("talos.cli.upgrade:command", "install another Talos version or schematic on a machine"),
    "reboot": ("talos.cli.restart:command", "restart a machine and wait until it is up again"),
    "leave": (
        "talos.cli.leaving:command",
        "take a node out of its cluster: drain it, erase its machine, delete its Node",
    ),
    "reset": ("talos.cli.reset:command", "take a machine out of its cluster and erase it"),
    "client-cert": ("talos.cli.credentials:client_certificate", "issue a talosconfig with a role and a lifetime"),
    "machine-config": ("talos.cli.credentials:machine_config", "get the config that a machine runs by"),
    "etcd-snapshot": ("talos.cli.snapshot:command", "save etcd's data to a file"),
    "leftovers": (
        "talos.cli.leftovers:command",
        "delete objects that an earlier manifest had and the present one lacks",
    ),
    "factory": ("talos.cli.factory:command", "schematics and images of an image factory"),
}
"""Where each command is, and what it does."""

COMMAND_LINE = TalosGroup(
    "talos",
    help=_DESCRIPTION,
    places={name: place for name, (place, _) in _COMMANDS.items()},
    meanings={name: meaning for name, (_, meaning) in _COMMANDS.items()},
)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code. A failure is two lines on stderr: what, and the fix."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return command_line.run(COMMAND_LINE, argv, name="python -m talos")
    except KeyboardInterrupt:
        print("interrupted; run the same command again, it goes on from where the machine is", file=sys.stderr)
        return Exit.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the edge: one line for the user
        code = exit_for(error)
        print(f"error: {error}" if code is not Exit.BUG else _bug(error), file=sys.stderr)
        return code
    finally:
        signal.signal(signal.SIGTERM, previous)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _bug(error: Exception) -> str:
    # Where it happened, without its text: an unforeseen error may quote anything.
    places = "".join(traceback.format_tb(error.__traceback__))
    return f"{places}error: a bug of this program: {type(error).__name__}\n  fix: report the lines above"
