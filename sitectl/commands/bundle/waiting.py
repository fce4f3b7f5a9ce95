"""Options of how long commands wait for registries and repositories."""

from __future__ import annotations

from collections.abc import Callable

import click

from bundle.asking import WaitingTimes

_SECONDS = click.FloatRange(min=0, min_open=True)
_TIMEOUT = click.option(
    "--timeout",
    type=_SECONDS,
    default=WaitingTimes.answer_s,
    show_default=True,
    metavar="SECONDS",
    help="for one answer",
)
_TOTAL = click.option(
    "--total-timeout",
    type=_SECONDS,
    default=WaitingTimes.total_s,
    show_default=True,
    metavar="SECONDS",
    help="for all answers together",
)


def waits(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command both, as `timeout` and `total_timeout` in seconds."""
    return _TIMEOUT(_TOTAL(command))
