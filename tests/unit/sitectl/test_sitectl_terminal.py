"""Output fits the terminal that reads it, and is left alone for everything else."""

from __future__ import annotations

import io
import re
from pathlib import Path

import click
import pytest

from sitectl.shell import terminal
from sitectl.shell.cli import COMMAND_LINE, COMMANDS, main
from stacks.facts import catalogue
from tests.command_lines import help_text

pytestmark = pytest.mark.row("C.05")

LONG = "word " * 40


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def printed(folder: Path, *words: str, out: io.StringIO) -> str:
    assert main([words[0], "--quiet", "--project", str(folder), *words[1:]], out=out) == 0
    return out.getvalue()


@pytest.mark.parametrize(
    "words", [("validate",), ("proof", "prod"), ("rules", "lab"), ("rules", "--list"), ("catalogue", "list"), ("docs",)]
)
def test_lines_fit_a_terminal_of_80_columns(
    checkout_folder: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    on_terminal = printed(checkout_folder, *words, out=Tty())
    # A command stays in one piece, and the next one names this folder.
    lines = [line.replace(str(checkout_folder), "DIR") for line in on_terminal.splitlines()]
    assert [line for line in lines if len(line) > 80] == []
    piped = printed(checkout_folder, *words, out=io.StringIO())
    assert on_terminal.split() == piped.split(), "no word is lost"


def test_a_pipe_is_neither_wrapped_nor_coloured() -> None:
    text = f"error: {LONG}\n  fix: {LONG}"
    assert terminal.shown(text, io.StringIO()) == text


def test_a_wrapped_line_goes_on_below_its_text() -> None:
    lines = terminal.wrapped(f"  layout      {LONG.strip()}", 60).splitlines()
    assert len(lines) > 2
    assert all(line.startswith(" " * 14 + "word") for line in lines[1:])


def test_a_command_stays_in_one_piece() -> None:
    command = "python -m sitectl init berlin --machines 3+6 --network 10.1.0.0/24"
    assert command in terminal.wrapped(f"  fix: {LONG.strip()}; {command}", 70)


def test_a_name_that_is_also_a_command_keeps_its_column() -> None:
    """doctor: `pulumi` and `kubectl` are the first column there, and a blank behind them was lost."""
    lines = terminal.wrapped(f"note  git                 {LONG.strip()}\nnote  pulumi              {LONG.strip()}", 70)
    assert {line.index("word") for line in lines.splitlines() if line.startswith("note")} == {26}


@pytest.mark.parametrize("columns", range(60, 121, 4))
def test_names_with_dashes_stay_whole_in_a_help(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gpt-oss-120b` was cut behind its first dash at 100 columns, so it could neither be found nor copied."""
    monkeypatch.setenv("COLUMNS", str(columns))
    reported = help_text(COMMAND_LINE, "init")
    assert [name for name in catalogue.names() if name not in reported] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_of_a_help_is_one_line_of_80_columns(name: str) -> None:
    """Wrapped, what an example says goes on below its command, or behind fifty blanks."""
    command = COMMAND_LINE.get_command(click.Context(COMMAND_LINE), name)
    assert command and command.epilog
    examples = [line for line in command.epilog.splitlines() if line.startswith(" ")]
    assert [line for line in examples if len(line) > 80] == []
    shown = help_text(COMMAND_LINE, name).splitlines()
    assert [line for line in examples if line not in shown] == []


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_is_for_terminals_that_want_it(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "error: no such site\n  fix: name one"
    assert "\033[1;31merror\033[0m:" in terminal.shown(text, Tty())
    assert re.sub(r"\033\[[\d;]*m", "", terminal.shown(text, Tty())) == text
    monkeypatch.setenv(variable, value)
    assert terminal.shown(text, Tty()) == text


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_80_columns(name: str) -> None:
    shown = help_text(COMMAND_LINE, *([name] if name else []))
    assert [line for line in shown.splitlines() if len(line) > 80] == []
