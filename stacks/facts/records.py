"""Files that hold facts: the base of their models, and how they are read.

As floor.spec.Spec, without the engine: the proof runs where no engine is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from floor.problems import Problem, file_error, refused_value, shown
from floor.reading.document import YamlDocument, read_file

_FIX = "correct it, or take the file back from version control"
_KEYS, _ITEMS = "lines of `key: value`", "lines that begin with a dash"
ROOT = Path(__file__).parents[2]
Facts = TypeVar("Facts")


class Record(BaseModel):
    """Facts of one thing. Unknown keys are errors; values never change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def shown_name(path: Path) -> str:
    """A file of the checkout as its users name it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def read_document(path: Path) -> YamlDocument:
    """A file of facts with its lines. Raises SiteError where it is missing."""
    try:
        return read_file(path)
    except FileNotFoundError:
        missing = Problem(path=(), what="no such file", fix="take it back from version control")
        raise file_error(shown_name(path), [missing]) from None


def read_facts(path: Path, kind: type[Facts]) -> Facts:
    """The content of a file of facts. Raises SiteError with every mistake, as for a site's file."""
    file, document = shown_name(path), read_document(path)
    if document.problems:
        raise file_error(file, document.problems)
    try:
        return TypeAdapter(kind).validate_python(document.values)
    except ValidationError as error:
        problems = [_described(detail) for detail in error.errors()]
        raise file_error(file, [problem.at(document.line(problem.path)) for problem in problems]) from None


def _described(detail: Any) -> Problem:
    path = tuple(str(part) for part in detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            return Problem(path=path, what="unknown key", fix="take it out")
        case "missing":
            return Problem(path=path, what="missing", fix=f"add {path[-1]}")
        case "value_error":
            return refused_value(path, detail)
        case "model_type" | "dict_type" | "model_attributes_type":
            return Problem(path=path, what="not a section of keys", got=shown(detail["input"]), allowed=_KEYS, fix=_FIX)
        case "list_type" | "tuple_type":
            return Problem(path=path, what="not a list", got=shown(detail["input"]), allowed=_ITEMS, fix=_FIX)
    message = str(detail["msg"])
    what = message[:1].lower() + message[1:]
    return Problem(path=path, what=what, got=shown(detail["input"]), fix=_FIX)
