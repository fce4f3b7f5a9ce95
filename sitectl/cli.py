"""The command line. A subcommand is a module of `sitectl.commands`, imported when it is used."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Protocol, TextIO, cast

from floor.problems import SiteError
from floor.secret_texts import without_secrets
from sitectl import home, invocation, project_folder, terminal, usage
from sitectl.errors import MEANINGS, Exit, SitectlError, bug, no_resources, unusable_file, unwritable_output
from sitectl.progress import Progress

COMMANDS: Mapping[str, str] = {
    "init": "write a commented, valid file for a new site; asks nothing",
    "catalogue": "list the models that a site can order, show one, or add one from its config.json",
    "validate": "check site files: every mistake at once, with line, allowed values and fix",
    "proof": "prove each model: does it fit, how fast, how many at once, what it costs; and all of them on the nodes",
    "explain": "show where a value comes from: a key of a site, or a field of an object",
    "render": "write what a site declares into a folder, one file per object, without secrets",
    "rules": "check what sites declare against the platform's rules",
    "diff": "show what differs between two git revisions or two rendered folders, without a cluster",
    "bundle": "fetch the definitions, charts and pod network that sites install, and compare them with the pins",
    "plan": "show what `pulumi up` would do: the irreversible first, GPUs, cost, restarts, tenants",
    "comment": "post what a change does to every site as one comment, edited in place",
    "drift": "show where a cluster differs from its site's file, and who set what; or keep one issue per site",
    "versions": "list every version that the platform pins",
    "doctor": "check whether this machine can work on sites, and how to get what is missing",
    "docs": "list the documentation's pages, or print one",
    "completion": "print the completion of a shell: bash, zsh or fish",
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


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every command is given."""

    folder: Path
    """Where the user is, or what --project names."""
    json: bool
    out: TextIO
    progress: Progress

    @cached_property
    def project(self) -> Path:
        """The checkout, or the folder of an installed sitectl's user. Raises SitectlError outside of one."""
        found = project_folder.find(self.folder)
        if file := home.first_difference(found):
            self.progress.note(
                f"note: {file} of this checkout is not as installed: `render` and `pulumi up` run the checkout's "
                "program, other commands the installed one\n"
                "  fix: call the checkout's bin/sitectl, or install it: pip install ."
            )
        return found

    def say(self, text: str, record: Any) -> None:
        """Print `text` for people, or `record` with --json."""
        if self.json:
            text = json.dumps(record, indent=2, sort_keys=True, default=str)
        told = invocation.as_called(without_secrets(text.rstrip("\n")))
        with _writing():
            print(told if self.json else terminal.shown(told, self.out), file=self.out)


class Command(Protocol):
    """What a module offers to be a subcommand; `run` returns the exit status."""

    MORE: str
    """What --help teaches beyond the arguments."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, context: Any, arguments: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """Says a mistake in the one form of our errors."""

    def error(self, message: str) -> NoReturn:
        self._end(usage.error(self, message))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, extras = super().parse_known_args(args, namespace)
        return (parsed, extras) if not extras else self._end(usage.unknown(self, extras))

    def _end(self, said: SitectlError) -> NoReturn:
        _print_error(said)
        sys.exit(said.status)


class _CommandParser(Parser):
    """The parser of one subcommand, which gets its arguments from its module once it is used."""

    is_filled = False

    def fill(self) -> _CommandParser:
        """With the arguments of the command's module."""
        if not self.is_filled:
            self.is_filled = True
            command = load(self.prog.rpartition(" ")[2])
            self.epilog = invocation.as_called(command.MORE)
            command.add_arguments(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        return self.fill() and super().parse_known_args(args, namespace)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"sitectl {home.version()} ({home.FOLDER})")
        parser.exit()


def command_parsers() -> Mapping[str, _CommandParser]:
    """The parser of each subcommand, by name."""
    actions = parser()._actions
    (commands,) = (action for action in actions if isinstance(action, argparse._SubParsersAction))
    return cast(Mapping[str, _CommandParser], commands.choices)


def load(name: str) -> Command:
    """The module of a command."""
    return cast(Command, importlib.import_module(f"sitectl.commands.{name}"))


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    statuses = "\n".join(f"  {status.value:<4} {meaning}" for status, meaning in MEANINGS.items())
    top = Parser(
        prog=invocation.name(),
        description="Reads, checks, renders, compares and explains a site, mostly without engine or cluster.",
        epilog=invocation.as_called(_FIRST_STEPS) + statuses,
        formatter_class=terminal.Help,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and where it is, and stop")
    shared: Any = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print data instead of text, on stdout alone")
    shared.add_argument(
        "--project", type=Path, metavar="DIR", help="the folder of the sites (default: around this folder)"
    )
    shared.add_argument("--quiet", action="store_true", help="no progress on stderr")
    shared.add_argument("--debug", action="store_true", help="show where an error comes from, for its report")
    subcommands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_CommandParser)
    for name, meaning in COMMANDS.items():
        subcommands.add_parser(
            name,
            help=meaning,
            description=meaning[0].upper() + meaning[1:] + ".",
            parents=[shared],
            formatter_class=terminal.Help,
        )
    return top


def main(argv: list[str] | None = None, out: TextIO | None = None) -> int:
    """Run one subcommand. Whatever goes wrong is printed in one form; a traceback is shown with --debug alone."""
    terminal.prepare_streams()
    stream = out or sys.stdout
    arguments = argparse.Namespace(debug="--debug" in (argv or sys.argv), json=False)
    try:
        usage.refuse_options_first(sys.argv[1:] if argv is None else argv)
        arguments = parser().parse_args(argv)
        status = _run(arguments, stream)
        with _writing():
            stream.flush()
    except BrokenPipeError:
        # The reader has seen enough (`| head`).
        _write_nowhere(stream)
        return int(Exit.OK)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the edge: one line for the user, --debug for the trace
        return _failed(error, arguments, stream)
    return status


def _run(arguments: argparse.Namespace, out: TextIO) -> int:
    context = Context(
        folder=_folder(arguments.project),
        json=arguments.json,
        out=out,
        progress=Progress(None if arguments.quiet or arguments.json else sys.stderr),
    )
    status = load(arguments.command).run(context, arguments)
    context.progress.end()
    return status


def _folder(named: Path | None) -> Path:
    try:
        return (named or Path.cwd()).resolve()
    except FileNotFoundError:
        raise SitectlError(
            "the current folder was deleted", fix="change into one that is there", status=Exit.USAGE
        ) from None


@contextmanager
def _writing() -> Iterator[None]:
    """Raises SitectlError where stdout takes no text; a reader that has seen enough is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable_output(error) from error


def _failed(error: Exception, arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the error; its exit status."""
    told = _in_our_form(error)
    if arguments.debug:
        sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))
    try:
        if arguments.json:
            Context(folder=Path(), json=True, out=out, progress=Progress(None)).say("", {"error": told.record()})
        out.flush()
    except (OSError, SitectlError):
        _write_nowhere(out)
    _print_error(told)
    return int(told.status)


def _print_error(error: SitectlError) -> None:
    """On stderr; where that is full the status says it alone."""
    with contextlib.suppress(OSError):
        print(terminal.shown(invocation.as_called(without_secrets(error.text())), sys.stderr), file=sys.stderr)


def _in_our_form(error: Exception) -> SitectlError:
    match error:
        case SitectlError():
            return error
        case SiteError():
            return SitectlError(str(error), status=Exit.REFUSED)
        case OSError():
            return unusable_file(error)
        case MemoryError():
            return no_resources("out of memory")
    return bug(error)


def _write_nowhere(out: TextIO) -> None:
    """What is still buffered goes nowhere, without a complaint at exit."""
    if out is sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
