"""A wrong command line in the form of every other error, from argparse's message."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterable, Sequence

from floor.problems import nearest
from sitectl import invocation
from sitectl.errors import Exit, SitectlError

_NUMBERS = {"int": "a whole number", "float": "a number"}
# Options of every command -> number of arguments after them.
_SHARED = {"--json": 0, "--quiet": 0, "--debug": 0, "--project": 1}


def error(parser: argparse.ArgumentParser, message: str) -> SitectlError:
    """What argparse's message is about, in our own text; one that is not known here stays as it is."""
    if found := re.fullmatch(r"argument (\S+): invalid choice: '(.*?)' \(.*\)", message, re.DOTALL):
        return _not_a_choice(parser, found[1], found[2])
    if found := re.fullmatch(r"argument (\S+): invalid (int|float) value: '(.*)'", message, re.DOTALL):
        return _not_a_number(parser, *found.groups())
    return _usage(message, fix=f"{parser.prog} --help")


def unknown(parser: argparse.ArgumentParser, extras: Sequence[str]) -> SitectlError:
    """Arguments that the command does not accept."""
    command = parser.prog.removeprefix(invocation.name()).strip() or "sitectl"
    option = next((word.partition("=")[0] for word in extras if word.startswith("-") and word != "-"), "")
    if not option:
        return _usage(f"{command} takes no further argument", got=" ".join(extras), fix=f"{parser.prog} --help")
    near = nearest(option, [name for action in parser._actions for name in action.option_strings])
    return _usage(f"{command} has no option {option}{_meant(near)}", fix=f"{parser.prog} --help")


def refuse_options_first(words: Sequence[str]) -> None:
    """Raise SitectlError for options of a command that come before it: there argparse takes a value for the command."""
    rest = list(words)
    first: list[str] = []
    while rest and (option := rest[0].partition("=")[0]) in _SHARED:
        count = 1 + (_SHARED[option] if option == rest[0] else 0)
        first, rest = [*first, *rest[:count]], rest[count:]
    if first and rest:
        raise _usage("options come after the command", fix=f"{invocation.name()} {shlex.join([*rest, *first])}")


def _not_a_choice(parser: argparse.ArgumentParser, name: str, got: str) -> SitectlError:
    choices = list(_choices(parser, name))
    near = nearest(got, choices)
    if name == "COMMAND":
        what = f"no command '{got}'{_meant(near)}"
        return _usage(what, allowed="" if near else ", ".join(choices), fix=f"{parser.prog} --help")
    what = f"{name}: not one of its values{_meant(near)}"
    return _usage(what, got=got, allowed=", ".join(choices), fix=f"{parser.prog} --help")


def _choices(parser: argparse.ArgumentParser, name: str) -> Iterable[str]:
    for action in parser._actions:
        if name in (action.metavar, action.dest, *action.option_strings):
            return map(str, action.choices or ())
    return ()


def _not_a_number(parser: argparse.ArgumentParser, name: str, kind: str, got: str) -> SitectlError:
    point = got.replace(",", ".")
    with_point = kind == "float" and got != point and re.fullmatch(r"\d+\.\d+", point)
    fix = f"{name} {point}" if with_point else f"{parser.prog} --help"
    return _usage(f"{name}: not {_NUMBERS[kind]}", got=got, allowed=f"{_NUMBERS[kind]}, without a unit", fix=fix)


def _meant(near: str) -> str:
    return f"; did you mean '{near}'?" if near else ""


def _usage(what: str, *, fix: str, got: str = "", allowed: str = "") -> SitectlError:
    return SitectlError(what, got=got, allowed=allowed, fix=fix, status=Exit.USAGE)
