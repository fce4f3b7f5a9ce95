"""`completion`: what makes a shell complete the words after `sitectl`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sitectl.shell.command import COMPLETE, Command, CommandContext, pass_context
from sitectl.shell.errors import Exit

MORE = """\
Completes commands, options, files, pages, models of the catalogue, and names of sites: those of the folder that you
are in. Put the line into ~/.bashrc, into ~/.zshrc below compinit, or into ~/.config/fish/config.fish:

\b
  bash   eval "$(python -m sitectl completion bash)"
  zsh    eval "$(python -m sitectl completion zsh)"
  fish   python -m sitectl completion fish | source
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_context
def command(context: CommandContext, *, shell: str) -> int:
    of_shell = get_completion_class(shell)
    assert of_shell  # noqa: S101 - click has all three
    text = of_shell(command, {}, "sitectl", COMPLETE).source()
    context.say(text, {"shell": shell, "text": text})
    return int(Exit.OK)
