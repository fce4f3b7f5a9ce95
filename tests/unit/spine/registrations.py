"""`python -m tests.unit.spine.registrations OUT FILE`: what the program registers for a stack file, as JSON.

The program of the current folder runs from its entry, under mocks, so that its modules may be arranged in any way.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pulumi

from sitectl.offline import mocked_program

STACK = "site"
_STACK_TYPE = "pulumi:pulumi:Stack"
FOUND: list[str] = []
MOST_DEBUG_MESSAGES = 6


class Registrations(mocked_program.Recorder):
    """Gives each resource the engine's URN, and keeps this with all else that a move can lose; one line each."""

    def __init__(self) -> None:
        super().__init__()
        FOUND.clear()

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """The types of all parents are part of a URN but for the stack's; the SDK's mocks keep the last one alone."""
        above = parent.split("::")[2] if parent else _STACK_TYPE
        whole = type_ if above == _STACK_TYPE else f"{above}${type_}"
        return f"urn:pulumi:{STACK}::{mocked_program.PROJECT}::{whole}::{name}"

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        answer = super().RegisterResource(request)
        if request.type != _STACK_TYPE:
            options = {
                "parent": "" if f"::{_STACK_TYPE}::" in request.parent else request.parent.split("::")[-1],
                "provider": "".join(request.provider.split("::")[3:4]),
                "protect": request.protect,
                "retain": request.retainOnDelete,
                # A frame more is a line more of each resource's state, and time of each preview.
                "trace": len(request.stackTrace.frames),
                "aliases": [" ".join(str(alias).split()) for alias in request.aliases],
            }
            words = [f"{key}={value}" for key, value in options.items() if value]
            FOUND.append(" ".join([answer.urn.split("::", 2)[2], *words]))
        return answer


def main(out: str, file: str) -> None:
    sys.path.insert(0, str(Path.cwd()))
    mocked_program.Recorder = Registrations  # type: ignore[misc]
    # The files that a site reads are in this folder.
    mocked_program._leave_files_out = lambda site, machines: None  # noqa: ARG005 - the names are part of its type
    # The SDK registers all, with its traces and aliases.
    mocked_program.registered_at_once = lambda *_: mocked_program._sdk_register  # type: ignore[attr-defined]
    debug: list[str] = []
    pulumi.log.debug = lambda msg, *_: debug.append(msg)
    mocked_program.declared(STACK, Path(file))
    # Before the program runs, the stack alone is registered.
    if len(debug) > MOST_DEBUG_MESSAGES:
        FOUND.append(f"debug messages: {len(debug)}")
    Path(out).write_text(json.dumps(sorted(FOUND)))


if __name__ == "__main__":
    main(*sys.argv[1:])
