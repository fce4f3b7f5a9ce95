"""`completion`: what a shell offers after `sitectl`."""

from __future__ import annotations

import argparse
from typing import Any

from sitectl import cli, home
from sitectl.commands import docs
from sitectl.errors import Exit
from stacks.facts import catalogue

MORE = """\
Completes commands, options, pages, models of the catalogue, and names of sites: those of the folder that you are in.
Put the line into ~/.bashrc, into ~/.zshrc below compinit, or into ~/.config/fish/config.fish:

  bash   eval "$(python -m sitectl completion bash)"
  zsh    eval "$(python -m sitectl completion zsh)"
  fish   python -m sitectl completion fish | source
"""
_SHELLS = ("bash", "zsh", "fish")
_SITES = "for file in Pulumi.*.yaml; do file=${file#Pulumi.}; echo ${file%.yaml}; done"
_OF_SITES = ("validate", "proof", "explain", "render", "rules", "diff", "plan", "drift")

_BASH = """\
_sitectl() {{
  local word=${{COMP_WORDS[COMP_CWORD]}}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands} --help --version" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
}}
complete -o default -F _sitectl sitectl
"""
_BASH_CASE = '    {name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;'
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(context: Any, arguments: argparse.Namespace) -> int:
    commands = options()
    text = _fish(commands) if arguments.shell == "fish" else _bash(commands)
    if arguments.shell == "zsh":
        text = _ZSH + text
    context.say(text, {"shell": arguments.shell, "text": text})
    return int(Exit.OK)


def options() -> dict[str, list[str]]:
    """The options of each command."""
    found = {}
    for name, parser in cli.command_parsers().items():
        actions = [action for action in parser.fill()._actions if action.option_strings]
        found[name] = sorted(option for action in actions for option in action.option_strings)
    return found


def words(name: str) -> list[str]:
    """What a command takes that is no option and no site."""
    match name:
        case "docs":
            return list(docs.pages(home.above_docs()))
        case "catalogue":
            return ["list", "show", "add", *catalogue.names()]
        case "completion":
            return list(_SHELLS)
    return []


def _bash(commands: dict[str, list[str]]) -> str:
    sites = {name: [f"$({_SITES})"] for name in _OF_SITES}
    cases = [
        _BASH_CASE.format(name=name, words=" ".join([*own, *words(name), *sites.get(name, [])]))
        for name, own in commands.items()
    ]
    return _BASH.format(commands=" ".join(commands), cases="\n".join(cases))


def _fish(commands: dict[str, list[str]]) -> str:
    lines = ["complete -c sitectl -f"]
    for name, own in commands.items():
        meaning = cli.COMMANDS[name].replace("'", "")
        lines.append(f"complete -c sitectl -n __fish_use_subcommand -a {name} -d '{meaning}'")
        used = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [f"complete -c sitectl {used} -l {option[2:]}" for option in own if option.startswith("--")]
        if own_words := words(name):
            lines.append(f"complete -c sitectl {used} -a '{' '.join(own_words)}'")
        if name in _OF_SITES:
            lines.append(f"""complete -c sitectl {used} -a '(sh -c "{_SITES.replace("$", chr(92) + "$")}")'""")
    return "\n".join(lines) + "\n"
