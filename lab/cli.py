"""Command line of the emulated site. A subcommand is a module with HELP, `add_arguments(parser)`, `run(lab, args)`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Protocol

from lab import deploy, doctor, session
from lab.errors import LabError
from lab.install import command as install
from lab.paths import Lab
from lab.site import down, logs, status, up

_FIX_OF_A_PLACE = "work in a checkout of your own, or name folders that you may write: LAB_HOME, LAB_CACHE"


class Command(Protocol):
    """What a module offers to be a subcommand; `run` returns the exit status."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, lab: Lab, arguments: argparse.Namespace) -> int: ...


class Install:
    """The installer's own command line as a subcommand; it finds its lab by the same environment."""

    HELP = "build or find the lab's tools"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        install.add_arguments(parser)

    def run(self, lab: Lab, arguments: argparse.Namespace) -> int:  # noqa: ARG002 - the command line's form
        return install.run(arguments)


COMMANDS: dict[str, Command] = {
    "up": up,
    "down": down,
    "status": status,
    "logs": logs,
    "deploy": deploy,
    "doctor": doctor,
    "env": session,
    "install": Install(),
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m lab", description="The emulated site on this machine.")
    subcommands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.add_arguments(subcommands.add_parser(name, help=command.HELP, description=command.HELP))
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; what the user can fix is printed without a traceback and gives exit status 1."""
    arguments = parser().parse_args(argv)
    try:
        return COMMANDS[arguments.command].run(Lab.from_environment(), arguments)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except PermissionError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        print(f"  fix: {_FIX_OF_A_PLACE}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has seen enough (`| head`). What is still buffered goes nowhere, without a complaint at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
