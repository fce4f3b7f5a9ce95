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


def help_text(command: click.Command, *words: str) -> str:
    """What --help prints of a command, or of the one below it that the words name."""
    context = command_line.Context(command, info_name="program")
    for word in words:
        assert isinstance(command, click.Group)
        below = command.get_command(context, word)
        assert below
        command = below
        context = command_line.Context(command, info_name=word, parent=context)
    return context.get_help()
