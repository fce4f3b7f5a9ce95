"""The command line: its commands, and the exit code of the process."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from types import FrameType
from typing import NoReturn, Protocol

from talos.cli import (
    apply,
    bootstrap,
    factory,
    health,
    leaving,
    planning,
    planning_all,
    reset,
    restart,
    rolling,
    snapshot,
    upgrade,
)
from talos.cli.bundle import IssuedTalosconfig, Secrets
from talos.cli.credentials import ClientCertificate, Kubeconfig
from talos.cli.failures import EXIT_CODES, Exit, exit_for
from talos.cli.inputs import INPUTS

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


class Command(Protocol):
    """What a module offers to be a command; `run` returns the exit code."""

    HELP: str
    DESCRIPTION: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


_COMMANDS: dict[str, Command] = {
    "secrets": Secrets(),
    "talosconfig": IssuedTalosconfig(),
    "plan": planning,
    "plan-all": planning_all,
    "apply": apply,
    "bootstrap": bootstrap,
    "kubeconfig": Kubeconfig(),
    "health": health,
    "status": health.Status(),
    "roll": rolling,
    "upgrade": upgrade,
    "reboot": restart,
    "leave": leaving,
    "reset": reset,
    "client-cert": ClientCertificate(),
    "etcd-snapshot": snapshot,
    "factory": factory,
}


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    form = argparse.RawDescriptionHelpFormatter
    end = f"{INPUTS}\n\n{EXIT_CODES}"
    top = argparse.ArgumentParser(
        prog="python -m talos", description=_DESCRIPTION, epilog=end, formatter_class=form, allow_abbrev=False
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        one = commands.add_parser(
            name,
            help=command.HELP,
            description=command.DESCRIPTION,
            epilog=end,
            formatter_class=form,
            allow_abbrev=False,
        )
        command.add_arguments(one)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code. A failure is two lines on stderr: what, and the fix."""
    arguments = parser().parse_args(argv)
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _COMMANDS[arguments.command].run(arguments)
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
