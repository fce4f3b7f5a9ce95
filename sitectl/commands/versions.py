"""`versions`: everything that is pinned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import click

from sitectl.shell.command import Command, CommandContext, pass_context
from stacks.facts import versions

MORE = """\
From stacks/facts/versions.yaml, the only file that names versions; files are pinned by their digest. Python packages
are in requirements.lock.
"""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@click.command(cls=Command, epilog=MORE)
@pass_context
def command(context: CommandContext) -> int:
    pins: dict[str, str] = dict(_leaves("", versions.load().model_dump(exclude_none=True)))
    width = max(len(name) for name in pins)
    lines = [f"{name:<{width}}  {'sha256:' if _DIGEST.fullmatch(value) else ''}{value}" for name, value in pins.items()]
    context.say("\n".join(lines), pins)
    return 0


def _leaves(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _leaves(f"{path}[{number}]", inner)
    else:
        yield path, str(value)
