"""Command line of the emulated site. A command is imported when it is called, and is given the lab."""

from __future__ import annotations

import os
import sys

from floor import command_line
from lab.errors import LabError
from lab.paths import Lab

_FIX_OF_A_PLACE = "work in a checkout of your own, or name folders that you may write: LAB_HOME, LAB_CACHE"


_COMMANDS = {
    "up": (
        "lab.site.up:command",
        "start the emulated site, with machines waiting for their configs, or restore what is missing of it",
    ),
    "down": ("lab.site.down:command", "stop the lab: no process, namespace, link, route or mount of it remains"),
    "status": ("lab.site.status:command", "show the lab's processes and machines: state, process id, restarts, memory"),
    "logs": ("lab.site.logs:command", "print the log of a pod's container or of a lab component"),
    "deploy": ("lab.deploy:command", "deploy the platform with pulumi, and ask a model through its gateway"),
    "doctor": ("lab.doctor:command", "check whether this machine can run the lab, and show what it uses"),
    "env": ("lab.session:command", 'print the environment to run pulumi yourself: eval "$(python -m lab env)"'),
    "install": ("lab.install.command:command", "build or find the lab's tools"),
}
"""Where each command is, and what it does."""

COMMAND_LINE = command_line.Group(
    "lab",
    help="The emulated site on this machine.",
    places={name: place for name, (place, _) in _COMMANDS.items()},
    meanings={name: meaning for name, (_, meaning) in _COMMANDS.items()},
)


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand; what the user can fix is printed without a traceback and gives exit status 1."""
    try:
        return command_line.run(COMMAND_LINE, argv, name="python -m lab", obj=Lab.from_environment())
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
