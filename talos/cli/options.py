"""How a command is declared: its form, and the options that name a machine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click

from floor import command_line
from talos.cli.failures import EXIT_CODES
from talos.cli.inputs import INPUTS, Address
from talos.cli.waiting import POLL_S


class _WithInputs(command_line.Verbatim):
    """Every help ends with the inputs and the exit codes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "epilog": f"{INPUTS}\n\n{EXIT_CODES}"})


class Command(_WithInputs, command_line.Command):
    pass


class TalosGroup(_WithInputs, command_line.Group):
    command_class = Command


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """Which machine, as whom, and for how long."""

    address: str
    name: str | None
    through: str | None
    talosconfig: str | None
    context: str | None
    timeout: str
    call_timeout: str | None
    poll: str
    fingerprint: str | None = None
    insecure: bool = False

    @classmethod
    def taken_from(cls, parameters: dict[str, Any]) -> MachineOptions:
        """These options out of a command's parameters, which then are the command's own."""
        names = [field.name for field in fields(cls) if field.name in parameters]
        return cls(**{name: parameters.pop(name) for name in names})

    @property
    def node(self) -> str:
        """What messages call the machine."""
        return self.name or Address.parse(self.address).host


_MAINTENANCE = (
    click.option(
        "--fingerprint", metavar="BASE64", help="in maintenance mode, the key's SHA-256 that the console shows"
    ),
    click.option(
        "--insecure",
        is_flag=True,
        help="in maintenance mode, believe any machine that answers: it gets the config with its secrets",
    ),
)


def machine_options(*, timeout: str, maintenance: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Gives a command the options of MachineOptions as its first argument.

    maintenance: also how to know a machine that has no config yet.
    """
    options = (
        click.option("--address", required=True, metavar="HOST[:PORT]", help="the machine (port 50000)"),
        click.option("--name", metavar="NAME", help="the machine's name in messages (its address)"),
        click.option(
            "--through", metavar="HOST[:PORT]", help="a control plane that passes the calls on; without: directly"
        ),
        click.option("--talosconfig", metavar="FILE", help="credentials; `-` for stdin"),
        click.option("--context", metavar="NAME", help="context of the talosconfig (its current one)"),
        click.option(
            "--timeout",
            default=timeout,
            metavar="DURATION",
            help=f"give up after this long, like 90s or 15m ({timeout})",
        ),
        click.option(
            "--call-timeout",
            metavar="DURATION",
            help="no single call of the machine may take longer (a limit of its own)",
        ),
        click.option(
            "--poll",
            default=f"{POLL_S:g}",
            metavar="SECONDS",
            help=f"while waiting, the pause between two looks ({POLL_S:g})",
        ),
        *(_MAINTENANCE if maintenance else ()),
    )

    def declare(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def command(**parameters: Any) -> int:
            return function(MachineOptions.taken_from(parameters), **parameters)

        return functools.reduce(lambda made, option: option(made), reversed(options), command)

    return declare
