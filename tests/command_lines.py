"""Command lines that tests read and do not run."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import click

from floor import command_line


def refusal(command: click.Command, words: Sequence[str]) -> str:
    """Why the command line does not accept these words; empty where it does. No command runs."""
    try:
        with patch.object(click.Command, "invoke", return_value=0):
            command_line.invoke(command, words, name="program")
    except click.UsageError as error:
        return command_line.problem(error).sentence
    return ""


def below(command: click.Command, *words: str) -> tuple[click.Command, click.Context]:
    """The command that the words name, below this one, and its context."""
    context = command_line.Context(command, info_name="program")
    for word in words:
        assert isinstance(command, click.Group)
        named = command.get_command(context, word)
        assert named
        command = named
        context = command_line.Context(command, info_name=word, parent=context)
    return command, context


def help_text(command: click.Command, *words: str) -> str:
    """What --help prints of a command, or of the one below it that the words name."""
    return below(command, *words)[1].get_help()
