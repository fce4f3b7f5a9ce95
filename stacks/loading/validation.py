"""The site's model over plain values: every mistake at once, each with what is allowed and what to do."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stacks.loading.fields import Place, place
from stacks.loading.problems import Path, Problem, nearest, shown
from stacks.loading.scalars import whole
from stacks.site import SiteConfig

# Each round takes wrong values out, so that rules between keys speak on what is left; two levels of sections have some.
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A site, or what is wrong with it."""

    site: SiteConfig | None
    problems: tuple[Problem, ...]


def check(values: Mapping[str, Any]) -> Checked:
    """Values against the model. With problems, `site` is what is left when the wrong values are taken out, or None."""
    left: Any = plain(values)
    problems: list[Problem] = []
    told: set[Path] = set()
    out: set[Path] = set()
    for _ in range(_ROUNDS):
        try:
            # Over JSON, because that alone is strict about words and numbers and takes lists and paths as written.
            site = SiteConfig.model_validate_json(json.dumps(left), strict=True)
        except ValidationError as error:
            details = error.errors()
        else:
            return Checked(site=site, problems=tuple(problems))
        wrong = [(_path(detail), detail) for detail in details]
        fresh = [
            (path, detail)
            for path, detail in wrong
            if not any(path[: len(one)] == one for one in told) and not (detail["type"] == "missing" and path in out)
        ]
        if not fresh:
            break
        for path, detail in fresh:
            problems += _describe(path, detail)
            # What a section as a whole does wrong says nothing of its keys.
            if detail["type"] != "value_error":
                told.add(path)
        left = copy.deepcopy(left)
        for path, detail in fresh:
            _take_out(left, path, detail["type"])
            out.add(path)
    return Checked(site=None, problems=tuple(dict.fromkeys(problems)))


def plain(value: Any) -> Any:
    """The value as the engine hands it over in JSON: keys are text, and a number without a fraction is an int."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return whole(value)
    return value if isinstance(value, str | int | None) else str(value)


def _path(detail: ErrorDetails) -> Path:
    # pydantic's way to say that a mapping's key, not its value, is wrong.
    return tuple(str(part) for part in detail["loc"] if part != "[key]")


def _take_out(values: Any, path: Path, kind: str) -> None:
    if kind == "missing" or not path:
        return
    for key in path[:-1]:
        values = values[int(key)] if isinstance(values, list) else values.get(key, {})
    if isinstance(values, dict):
        values.pop(path[-1], None)
    elif isinstance(values, list) and path[-1].isdigit() and int(path[-1]) < len(values):
        # Not removed, or the items behind it would change their numbers.
        values[int(path[-1])] = ""


def _describe(path: Path, detail: ErrorDetails) -> list[Problem]:
    here = place(path)
    got = shown(detail["input"])
    match detail["type"]:
        case "extra_forbidden":
            return [_unknown(path)]
        case "missing":
            return [_missing(path, here)]
        case "value_error":
            cause = str(detail.get("ctx", {}).get("error", detail["msg"]))
            what, _, fix = cause.partition("\nfix: ")
            return [Problem(path=path, what=what, fix=fix or "change one of them")]
    allowed = here.allowed() if here else ""
    near = nearest(detail["input"], here.words()) if here and isinstance(detail["input"], str) else ""
    if detail["input"] is None:
        return [Problem(path=path, what="has no value", allowed=allowed, fix=_fix(path, here, near))]
    return [
        Problem(
            path=path,
            what=_what(here, detail),
            got=got,
            allowed="" if here and here.model else allowed,
            near=near,
            fix=_fix(path, here, near, detail["input"]),
        )
    ]


def _unknown(path: Path) -> Problem:
    above = place(path[:-1])
    words = above.words() if above else []
    near = nearest(path[-1], words)
    others = ", ".join(words)
    if near:
        fix = f"rename it to {near}, or take it out"
    elif home := _home(path[-1]):
        fix = f"move it to {home}, or take it out"
    else:
        fix = "take it out; every key there is: docs/configuration.md"
    return Problem(path=path, what="unknown key", allowed=others, near=near, fix=fix)


def _missing(path: Path, here: Place | None) -> Problem:
    allowed = here.allowed() if here else ""
    if here and here.model:
        allowed = f"a section with {allowed}"
    meaning = f" ({here.meaning.rstrip('.')})" if here and here.meaning else ""
    return Problem(path=path, what="missing", allowed=allowed, fix=f"add it{meaning}")


def _what(here: Place | None, detail: ErrorDetails) -> str:
    kind = detail["type"]
    if here and (here.model or "dict" in kind):
        return "not a section of keys"
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return "out of range"
    if kind == "too_short":
        return "empty"
    if kind == "literal_error":
        return "not one of the words that it takes"
    if "tuple" in kind or "list" in kind:
        return "not a list"
    if kind == "string_pattern_mismatch":
        return "not in the form that it takes"
    if kind.startswith(("int", "float", "finite", "bool", "string", "path")):
        wanted = here.allowed().partition(" from ")[0].partition(" above ")[0] if here else "that"
        return f"not {wanted}"
    return str(detail["msg"])


def _fix(path: Path, here: Place | None, near: str, value: Any = None) -> str:
    name = path[-1] if path else "it"
    if near:
        return f"write {near}"
    if here and here.model:
        return f"write keys below {name}, indented by two more spaces"
    if here and isinstance(value, str) and here.annotation in (int, float) and _is_number(value):
        return "take the quotes off"
    if here and here.annotation is str and value is not None and not isinstance(value, str | dict | list):
        return f'put it in quotes: "{shown(value)}"'
    default = _default(here)
    return f"correct it{default}" if value is not None else f"give it a value{default}"


def _default(here: Place | None) -> str:
    if not here or not here.field:
        return ""
    if here.field.is_required():
        return f" ({here.meaning.rstrip('.')})" if here.meaning else ""
    default = here.field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel) or default in ((), {}, None):
        return ", or leave the key out"
    return f", or leave the key out for its default, {shown(plain(default)).strip(chr(39))}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _home(key: str) -> str:
    """Where a key that is unknown here has its place, if it has just one."""
    found: list[str] = []

    def visit(here: Place) -> None:
        inner = here.model
        if inner is None:
            below = here.below("name") if here.annotation and not isinstance(here.annotation, type) else None
            if below and below.model:
                visit(below)
            return
        for name in inner.model_fields:
            child = here.below(name)
            if child is None:
                continue
            if name == key:
                found.append(child.pattern)
            visit(child)

    top = place(())
    if top:
        visit(top)
    return found[0] if len(found) == 1 else ""
