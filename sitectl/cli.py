"""The command line. A subcommand is a module with HELP, `add_arguments(parser)` and `run(context, arguments)`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from sitectl import checkout
from sitectl.commands import (
    comment,
    diff,
    docs,
    doctor,
    drift,
    explain,
    init,
    plan,
    proof,
    render,
    rules,
    validate,
    versions,
)
from sitectl.errors import MEANINGS, Exit, SitectlError
from sitectl.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every command is given."""

    folder: Path
    """Where the user is, or what --project names."""
    json: bool
    out: TextIO
    progress: Progress

    @property
    def project(self) -> Path:
        """The checkout. Raises SitectlError outside of one."""
        return checkout.find(self.folder)

    def say(self, text: str, record: Any) -> None:
        """Print `text` for people, or `record` with --json."""
        if self.json:
            print(json.dumps(record, indent=2, sort_keys=True, default=str), file=self.out)
        else:
            print(text.rstrip("\n"), file=self.out)


class Command(Protocol):
    """What a module offers to be a subcommand; `run` returns the exit status."""

    HELP: str
    MORE: str
    """What --help teaches beyond the arguments."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, context: Any, arguments: argparse.Namespace) -> int: ...


COMMANDS: Mapping[str, Command] = {
    "init": init,
    "validate": validate,
    "proof": proof,
    "explain": explain,
    "render": render,
    "rules": rules,
    "diff": diff,
    "plan": plan,
    "comment": comment,
    "drift": drift,
    "versions": versions,
    "doctor": doctor,
    "docs": docs,
}

_FIRST_STEPS = """\
a first site:
  python -m sitectl init berlin --model glm-5-1=glm-5.1-fp8 --tenant search
  python -m sitectl validate berlin      every mistake at once, with line and fix
  python -m sitectl proof berlin         what each model holds, and what it costs
  python -m sitectl rules berlin         what no site may do
  python -m sitectl plan berlin          what `pulumi up` would do, the irreversible first

exit status:
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    statuses = "\n".join(f"  {status.value:<4} {meaning}" for status, meaning in MEANINGS.items())
    top = argparse.ArgumentParser(
        prog="python -m sitectl",
        description="Reads, checks, renders, compares and explains a site, mostly without engine or cluster.",
        epilog=_FIRST_STEPS + statuses,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print data instead of text, on stdout alone")
    shared.add_argument("--project", type=Path, metavar="DIR", help="the checkout (default: around this folder)")
    shared.add_argument("--quiet", action="store_true", help="no progress on stderr")
    subcommands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        one = subcommands.add_parser(
            name,
            help=command.HELP,
            description=command.HELP[0].upper() + command.HELP[1:] + ".",
            epilog=command.MORE,
            parents=[shared],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(one)
    return top


def main(argv: list[str] | None = None, out: TextIO | None = None) -> int:
    """Run one subcommand; what the user can mend is printed in one form, without a traceback."""
    arguments = parser().parse_args(argv)
    context = Context(
        folder=(arguments.project or Path.cwd()).resolve(),
        json=arguments.json,
        out=out or sys.stdout,
        progress=Progress(None if arguments.quiet or arguments.json else sys.stderr),
    )
    try:
        status = COMMANDS[arguments.command].run(context, arguments)
        context.progress.end()
    except SitectlError as error:
        if arguments.json:
            context.say("", {"error": error.record()})
        print(error.text(), file=sys.stderr)
        return int(error.status)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        # The reader has seen enough (`| head`). What is still buffered goes nowhere, without a complaint at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(Exit.OK)
    return status
