"""How a subcommand is declared: the options of all commands, and what each is given."""

from __future__ import annotations

import json as json_format
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import click

from floor import command_line
from floor.secret_texts import without_secrets
from sitectl.shell import home, invocation, project_folder, terminal
from sitectl.shell.errors import Exit, SitectlError, unwritable_output
from sitectl.shell.progress import Progress

PATH = click.Path(path_type=Path)


class FiniteRange(click.FloatRange):
    """A number within bounds; `nan` is within all of them for click, and `inf` where there is no upper one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


COMPLETE = "_SITECTL_COMPLETE"
"""The variable by which a shell asks for completions."""


@dataclass(kw_only=True)
class CommandContext:
    """What every command is given."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    named: Path | None = None
    """What --project names."""
    json: bool = False
    quiet: bool = False
    debug: bool = False

    @cached_property
    def folder(self) -> Path:
        """Where the user is, or what --project names. Raises SitectlError."""
        try:
            return (self.named or Path.cwd()).resolve()
        except FileNotFoundError:
            raise SitectlError(
                "the current folder was deleted", fix="change into one that is there", status=Exit.USAGE
            ) from None

    @cached_property
    def progress(self) -> Progress:
        """Steps of long work, on stderr."""
        return Progress(None if self.quiet or self.json else sys.stderr)

    @cached_property
    def project(self) -> Path:
        """The checkout, or the folder of an installed sitectl's user. Raises SitectlError outside of one."""
        project = project_folder.find(self.folder)
        if file := home.first_difference(project):
            self.progress.note(
                f"note: {file} of this checkout is not as installed: `render` and `pulumi up` run the checkout's "
                "program, other commands the installed one\n"
                "  fix: call the checkout's bin/sitectl, or install it: pip install ."
            )
        return project

    def say(self, text: str, record: Any) -> None:
        """Print `text` for people, or `record` with --json."""
        if self.json:
            text = json_format.dumps(record, indent=2, sort_keys=True, default=str)
        shown = invocation.as_called(without_secrets(text.rstrip("\n")))
        with writing():
            print(shown if self.json else terminal.shown(shown, self.out), file=self.out)


pass_context = click.make_pass_decorator(CommandContext, ensure=True)


@contextmanager
def writing() -> Iterator[None]:
    """Raises SitectlError where stdout takes no text; a reader that has seen enough is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritable_output(error) from error


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Put the value of an option of all commands into what the command is given."""
    if value:
        setattr(context.ensure_object(CommandContext), option.name, value)


def _shared(flag: str, *names: str, about: str, **options: Any) -> click.Option:
    return click.Option([flag, *names], help=about, expose_value=False, callback=_keep, **options)


SHARED = (
    _shared("--json", about="print data instead of text, on stdout alone", is_flag=True),
    _shared(
        "--project", "named", about="the folder of the sites (default: around this folder)", type=PATH, metavar="DIR"
    ),
    _shared("--quiet", about="no progress on stderr", is_flag=True),
    _shared("--debug", about="show where an error comes from, for its report", is_flag=True),
)
"""Options of all commands, behind the command or before it."""


class _Shared(click.Command):
    """With the options of all commands; its help names the program as the user called it."""

    def __init__(
        self, name: str | None = None, *, params: Sequence[click.Parameter] = (), epilog: str = "", **options: Any
    ) -> None:
        super().__init__(name, params=[*params, *SHARED], epilog=invocation.as_called(epilog), **options)


class Command(_Shared, command_line.Command):
    """A subcommand."""


class CommandGroup(_Shared, command_line.Group):
    """The command line, and a subcommand that has some of its own."""

    command_class = Command


def site_names(context: click.Context, argument: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Sites of the folder that the user is in, for the completion of a shell."""
    names = (file.name.removeprefix("Pulumi.").removesuffix(".yaml") for file in Path.cwd().glob("Pulumi.*.yaml"))
    return sorted(name for name in names if name.startswith(incomplete))


sites_argument = click.argument(
    "sites", nargs=-1, metavar="[SITE]...", shell_complete=site_names, help="names of sites (default: all)"
)
