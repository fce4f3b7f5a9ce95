"""What the command lines of the project share: commands that are imported once they are called, and our errors."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from click.exceptions import Exit
from click.shell_completion import CompletionItem

from floor.problems import Problem, nearest

USAGE = 2
"""Exit status of a wrong command line."""
_DASH = "\0"


class Formatter(click.HelpFormatter):
    """Breaks no line behind a dash: a cut name can neither be found nor copied."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace("-", _DASH))

    def write_dl(self, rows: Iterable[tuple[str, str]], *args: Any, **options: Any) -> None:
        super().write_dl([(name, text.replace("-", _DASH)) for name, text in rows], *args, **options)

    def getvalue(self) -> str:
        return super().getvalue().replace(_DASH, "-")

    @contextmanager
    def indentation(self) -> Iterator[None]:
        """None: an epilog's examples start where every other line does."""
        yield


class Context(click.Context):
    formatter_class = Formatter

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"help_option_names": ["-h", "--help"], **options})


class Several(click.Option):
    """An option of `Command` that takes every word up to the next option, as in `--sizes 10 100`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "multiple": True})


class WrongChoiceError(click.BadParameter):
    """A value that is none of those that an option or argument takes."""

    def __init__(
        self, value: str, choices: Sequence[str], context: click.Context | None, parameter: click.Parameter | None
    ) -> None:
        super().__init__(f"'{value}' is not one of its values", ctx=context, param=parameter)
        self.value = value
        self.choices = choices


class _Choice(click.Choice[str]):
    """click's own names no value that was probably meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise WrongChoiceError(str(value), list(self.choices), ctx, param) from None


class Command(click.Command):
    context_class = Context

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for parameter in self.params:
            if type(parameter.type) is click.Choice:
                parameter.type = _Choice(parameter.type.choices, parameter.type.case_sensitive)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {name for parameter in self.params if isinstance(parameter, Several) for name in parameter.opts}
        words: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-"):
                option = word if word in several else ""
            elif option and words[-1] != option:
                words.append(option)
            words.append(word)
        return super().parse_args(ctx, words)


class Group(click.Group):
    """Commands of its own, and commands of modules that are imported once they are called."""

    context_class = Context
    command_class: type[click.Command] | None = Command

    def __init__(
        self,
        *args: Any,
        package: str = "",
        meanings: Mapping[str, str] | None = None,
        places: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """meanings: what each command does that is the `command` of its module in `package`, for --help.

        places: where a command is instead, as `module:name`.
        """
        super().__init__(*args, **{"no_args_is_help": False, **options})
        self.package = package
        self.meanings = meanings or {}
        self.places = places or {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's form
        return [*self.meanings, *self.commands]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        meaning = self.meanings.get(cmd_name)
        if meaning is None:
            return super().get_command(ctx, cmd_name)
        place = self.places.get(cmd_name, f"{self.package}.{cmd_name.replace('-', '_')}:command")
        command: click.Command = pkgutil.resolve_name(place)
        command.help = command.help or f"{meaning[0].upper()}{meaning[1:]}."
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's form
        """As click does, but with whole sentences, and without an import."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.descriptions().items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click does, without an import."""
        names = {name: text for name, text in self.descriptions().items() if name.startswith(incomplete)}
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=text) for name, text in names.items()), *options]

    def descriptions(self) -> dict[str, str]:
        """What each command does."""
        return {**self.meanings, **{name: own.get_short_help_str(200) for name, own in self.commands.items()}}


class Verbatim(click.Command):
    """Mixed into a command or a group: its help and its end keep their lines."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's form
        formatter.write(f"\n{(self.help or '').strip()}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's form
        if self.epilog:
            formatter.write(f"\n{self.epilog.strip()}\n")


def invoke(command: click.Command, words: Sequence[str], *, name: str, obj: Any = None) -> int:
    """Run a command line; its exit status. Raises click.UsageError, and what the command raises.

    click's own `main` prints in another form, and hides a closed pipe.
    """
    try:
        with command.make_context(name, list(words), obj=obj) as context:
            return int(command.invoke(context) or 0)
    except Exit as ended:
        return ended.exit_code


def run(command: click.Command, words: Sequence[str] | None = None, *, name: str, obj: Any = None) -> int:
    """`invoke`, with a wrong command line as an error on stderr."""
    try:
        return invoke(command, sys.argv[1:] if words is None else words, name=name, obj=obj)
    except click.UsageError as error:
        wrong = problem(error)
        print(f"error: {wrong.sentence}\n  fix: {wrong.fix}", file=sys.stderr)
        return USAGE


def problem(error: click.UsageError) -> Problem:
    """A wrong command line as any other mistake: what is wrong, the name that was probably meant, and a fix."""
    context = error.ctx
    message = error.format_message()
    what, near, allowed = f"{message[0].lower()}{message[1:]}", "", ""
    fix = f"{context.command_path} --help" if context else "see --help"
    match error:
        case click.NoSuchOption() if context:
            names = [name for option in context.command.get_params(context) for name in option.opts]
            what, near = f"{_name(context)} has no option {error.option_name}", nearest(error.option_name, names)
        case click.NoSuchCommand() if context and isinstance(context.command, click.Group):
            names = context.command.list_commands(context)
            what, near = f"no command '{error.command_name}'", nearest(error.command_name, names)
            allowed = "" if near else ", ".join(names)
        case click.BadOptionUsage():
            fix = f"{error.option_name} VALUE"
        case click.MissingParameter(param=click.Parameter(type=click.Choice(choices=choices))):
            what, allowed = what.partition(".")[0], ", ".join(choices)
        case click.MissingParameter():
            pass
        case WrongChoiceError() if error.param:
            what = f"{_shown(error.param)}: {error.message}"
            near, allowed = nearest(error.value, error.choices), ", ".join(error.choices)
        case click.BadParameter() if error.param:
            what = f"{_shown(error.param)}: {error.message}"
    return Problem(path=(), what=what.rstrip("."), near=near, allowed=allowed, fix=fix)


def _name(context: click.Context) -> str:
    """The command without the program, which is named only where there is no command."""
    return context.command_path.removeprefix(context.find_root().command_path).strip() or context.command_path


def _shown(parameter: click.Parameter) -> str:
    return parameter.opts[-1] if isinstance(parameter, click.Option) else parameter.human_readable_name
