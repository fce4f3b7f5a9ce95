"""`plan-all`: what `plan` reports for several machines, in one process, as starting one takes longer than asking."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click

from talos.cli import inputs, planning
from talos.cli.failures import InputError
from talos.cli.options import Command, MachineOptions
from talos.secrets import variables

DESCRIPTION = f"""\
Show what `plan` shows, for several machines. Stdin has a JSON list with an object for each machine: `options` are those
of `plan` as a list of words, `config` is the machine config and may be empty. The result is a list in the same order.
A machine that refuses or does not answer is no failure, and keeps no other from being asked.

  echo '[{{"options": ["--address", "10.0.0.11", "--image", "REF", "--insecure"], "config": ""}}]' |
    python -m talos plan-all --at-once 4
  (${variables.SECRETS} or a talosconfig as for every command)"""


@click.command(cls=Command, help=DESCRIPTION)
@click.option("--at-once", type=int, default=1, metavar="N", help="machines asked at a time (1)")
def command(*, at_once: int) -> int:
    """Plan; prints one JSON list."""
    # All of them before the first is asked, so that a mistake is reported at once.
    questions = [_question(entry) for entry in _entries(inputs.text_of("-", "machines"))]
    pool = ThreadPoolExecutor(max_workers=max(1, at_once))
    try:
        inputs.print_result(list(pool.map(lambda ask: ask(), questions)))
    finally:
        # An interruption asks no further machine.
        pool.shutdown(cancel_futures=True)
    return 0


def _entries(text: str) -> list[dict[str, Any]]:
    """InputError that does not quote the text, which has secrets in it."""
    try:
        entries = json.loads(text)
        if all(isinstance(entry["config"], str) and isinstance(entry["options"], list) for entry in entries):
            return list(entries)
    except (ValueError, TypeError, KeyError):
        pass
    raise InputError(
        "machines: stdin is no JSON list of objects with `options` and `config`",
        fix='give each machine like {"options": ["--address", "10.0.0.11", ...], "config": ""}',
    )


def _question(entry: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    above = click.get_current_context().parent
    parameters = planning.command.make_context("plan", list(entry["options"]), parent=above).params
    return planning.question(MachineOptions.taken_from(parameters), parameters["image"], entry["config"])
