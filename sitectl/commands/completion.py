"""`completion`: what a shell offers behind `sitectl`."""

from __future__ import annotations

import argparse
from typing import Any

from sitectl import cli
from sitectl.errors import Exit

MORE = """\
Completes commands, options and names of sites, out of the Pulumi.SITE.yaml files of the folder that you are in.

  bash   eval "$(python -m sitectl completion bash)"      in ~/.bashrc
  zsh    eval "$(python -m sitectl completion zsh)"       in ~/.zshrc, below compinit
  fish   python -m sitectl completion fish | source       in ~/.config/fish/config.fish
"""
_SHELLS = ("bash", "zsh", "fish")
_SITES = "for file in Pulumi.*.yaml; do file=${file#Pulumi.}; echo ${file%.yaml}; done"

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
_BASH_CASE = '    {name}) COMPREPLY=($(compgen -W "{options} {sites}" -- "$word")) ;;'
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=_SHELLS, help="which shell reads it")


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


def _bash(commands: dict[str, list[str]]) -> str:
    sites = f"$({_SITES})"
    cases = [_BASH_CASE.format(name=name, options=" ".join(own), sites=sites) for name, own in commands.items()]
    return _BASH.format(commands=" ".join(commands), cases="\n".join(cases))


def _fish(commands: dict[str, list[str]]) -> str:
    lines = ["complete -c sitectl -f"]
    for name, own in commands.items():
        meaning = cli.COMMANDS[name].replace("'", "")
        lines.append(f"complete -c sitectl -n __fish_use_subcommand -a {name} -d '{meaning}'")
        used = f"-n '__fish_seen_subcommand_from {name}'"
        lines += [f"complete -c sitectl {used} -l {option[2:]}" for option in own if option.startswith("--")]
        lines.append(f"""complete -c sitectl {used} -a '(sh -c "{_SITES.replace("$", chr(92) + "$")}")'""")
    return "\n".join(lines) + "\n"
