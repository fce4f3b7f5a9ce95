"""A saved preview of the engine: read, and its form checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, StringConstraints, ValidationError

from floor.reading.files import UnreadableError, text_of
from sitectl.shell.errors import Exit, SitectlError

# The engine repeats every resource's inputs in it, before and after.
LARGEST_BYTES = 256 * 1024 * 1024
# Not into the file that the user named: it may be a site's.
SAVE_ONE = "save one first: python -m sitectl plan SITE --save preview.json"
_STACK_OF_URN = re.compile(r"urn:pulumi:([^:]+)::")


# What the engine does to a resource in one step (its apitype.OpType).
_Op = Literal[
    "same", "create", "update", "delete", "replace", "create-replacement", "delete-replaced", "read",
    "read-replacement", "refresh", "discard", "read-discard", "discard-replaced", "remove-pending-replace", "import",
    "import-replacement",
]  # fmt: skip
# It is printed in a row of its own.
_Line = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$")]


class _State(BaseModel):
    type: str = ""
    inputs: dict[str, Any] | None = None


class _Step(BaseModel):
    op: _Op
    urn: _Line
    oldState: _State | None = None  # noqa: N815 - the engine's name
    newState: _State | None = None  # noqa: N815 - the engine's name
    replaceReasons: list[str] | None = None  # noqa: N815 - the engine's name
    detailedDiff: dict[str, Any] | None = None  # noqa: N815 - the engine's name


class _Diagnostic(BaseModel):
    urn: str = ""
    message: str = ""
    severity: str = ""


class _Field(BaseModel):
    path: str
    manager: str


class _Foreign(BaseModel):
    resource: str
    fields: list[_Field]
    take_back: list[str]


class _Preview(BaseModel):
    """What we read of a preview; the rest is the engine's."""

    steps: list[_Step]
    diagnostics: list[_Diagnostic] | None = None
    config: dict[str, Any] | None = None
    proofs: list[str] | None = None
    headroom: list[dict[str, Any]] | None = None
    cold_starts: dict[str, dict[str, int]] | None = None
    foreign: list[_Foreign] | None = None


def read(file: Path, *, site: str = "") -> dict[str, Any]:
    """A saved preview; of this site, if one is named. Raises SitectlError."""
    try:
        document = json.loads(text_of(file, largest=LARGEST_BYTES))
    except FileNotFoundError:
        raise SitectlError(f"no such file: {file}", fix=SAVE_ONE, status=Exit.USAGE) from None
    except UnreadableError as error:
        raise SitectlError.of(error.problem, Exit.USAGE, before=f"{file} ") from None
    except (ValueError, RecursionError):
        raise SitectlError(f"{file} is not a saved preview", fix=SAVE_ONE, status=Exit.USAGE) from None
    preview = in_form(document, str(file))
    if site:
        _refuse_other_stack(preview, str(file), site)
    return preview


def in_form(document: Any, name: str) -> dict[str, Any]:
    """The preview, if it has the engine's form. Raises SitectlError that names where it has not."""
    try:
        _Preview.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise SitectlError(
            f"{name} is not a preview of the engine" + (f": {place}: {first['msg'].lower()}" if place else ""),
            fix=SAVE_ONE,
            status=Exit.USAGE,
        ) from None
    preview: dict[str, Any] = document
    return preview


def _refuse_other_stack(preview: Mapping[str, Any], name: str, site: str) -> None:
    """Raise SitectlError where the preview's resources belong to another stack; without resources this is unknown."""
    stacks = {match[1] for step in preview["steps"] if (match := _STACK_OF_URN.match(step["urn"]))}
    if others := sorted(stacks - {site}):
        raise SitectlError(
            f"{name} is a preview of another stack than {site}",
            got=", ".join(others),
            allowed=site,
            fix=f"save one of this site: python -m sitectl plan {site} --save preview.json",
            status=Exit.USAGE,
        )
