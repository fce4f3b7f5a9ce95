"""The file `rules.<site>.yaml`: a site's waivers of the rules, and the facts that they need."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from floor import problems
from floor.problems import Problem, nearest, refused_value, shown
from floor.reading.document import read_file
from policy.waivers import RulesSpec, Waiver

_LAST_DAY = "expires"
_FIX_OF_A_LINK = "make what it leads to, or remove the link: a site needs no such file"
_ALLOWED: Mapping[str, str] = {
    "reason": "10 letters or more",
    _LAST_DAY: "a day, as 2027-01-31",
    "sovereign": "true or false",
    "waivers": "a list of sections with rule, resource, reason and expires",
    **dict.fromkeys(("registries", "privileged_namespaces", "host_access"), "a list of text"),
}


def today() -> datetime.date:
    """The day on which a waiver holds or has expired, the same everywhere: in UTC."""
    return datetime.datetime.now(tz=datetime.UTC).date()


def path(project: Path, stack: str) -> Path:
    """Where the file would be; outside of the stack files' own pattern, so that no engine takes it for one."""
    return project / f"rules.{stack}.yaml"


def read(project: Path, stack: str) -> RulesSpec:
    """What the file sets; defaults without one. Raises SiteError with every mistake."""
    file = path(project, stack)
    try:
        document = read_file(file, plain_days=True)
    except FileNotFoundError:
        if file.is_symlink():
            dangling = Problem(path=(), what=f"is a link to {file.readlink()}, which is not there", fix=_FIX_OF_A_LINK)
            raise problems.file_error(str(file), [dangling]) from None
        return RulesSpec()
    if document.problems:
        raise problems.file_error(str(file), document.problems)
    try:
        return RulesSpec.model_validate({} if document.values is None else document.values)
    except ValidationError as error:
        reported = [_described(detail) for detail in error.errors()]
        raise problems.file_error(
            str(file), [problem.at(document.line(problem.path)) for problem in reported]
        ) from None


def _described(detail: ErrorDetails) -> Problem:
    where = tuple(str(part) for part in detail["loc"])
    key = where[-1] if where else ""
    words = list(Waiver.model_fields if where[:1] == ("waivers",) and len(where) > 1 else RulesSpec.model_fields)
    match detail["type"]:
        case "extra_forbidden":
            near = nearest(key, words)
            fix = f"rename it to {near}, or take it out" if near else "take it out"
            return Problem(path=where, what="unknown key", allowed=", ".join(words), near=near, fix=fix)
        case "missing":
            return Problem(path=where, what="missing", allowed=_ALLOWED.get(key, ""), fix=f"add {key}")
        case "value_error":
            return refused_value(where, detail)
    return Problem(
        path=where,
        what="not what it takes" if where else "not a section of keys",
        got=shown(detail["input"]),
        allowed=_ALLOWED.get(key, "" if where else ", ".join(words)),
        fix="see: python -m sitectl docs waive-a-rule",
    )
