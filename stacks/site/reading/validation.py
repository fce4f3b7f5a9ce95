"""The site's model over plain values: every mistake at once, each with the allowed values and the fix."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from floor.problems import Path, Problem, nearest, refused_value, shown
from floor.reading.scalars import whole
from floor.secret_texts import HIDDEN, NAMES_ONE, REVOKE, is_secret_name
from stacks.site.checks import forms
from stacks.site.demand import OverridesSpec
from stacks.site.model import SiteConfig
from stacks.site.reading.fields import SiteKey, number_text, place
from stacks.site.reading.salvage import salvaged

# Each round takes wrong values out, so that rules between keys speak on what is left; two levels of sections have some.
_ROUNDS = 4

_MOST_HOMES = 2
# With a good guess, a longer list is in the way.
_MOST_WORDS = 15
_NUMBER = re.compile(r"[-+]?[0-9.]+(e[-+]?[0-9]+)?", re.IGNORECASE)
_PARTED = re.compile(r"[0-9]{1,3}([, '][0-9]{3})+(\.[0-9]+)?")
_PERCENT = re.compile(r"[0-9]+(\.[0-9]+)? ?%")
_WITH_UNIT = re.compile(r"[0-9.]+ ?[A-Za-z/%]+")

# pydantic's names of errors that we report in our own words.
_KINDS_OF_ERROR = (
    "bool", "dict", "finite", "float", "greater_than", "int", "less_than", "list", "literal_error", "model", "path",
    "string", "too_long", "too_short", "tuple",
)  # fmt: skip

_UNKNOWN, _MISSING = "unknown key", "missing"
# Keys that one may look for to share GPUs (k8s-device-plugin 0.20.0, README, on the two kinds of sharing).
_SHARING = frozenset({"gpu_sharing", "sharing", "time_slicing", "mps"})
_NOT_SHARED = (
    "take it out: time slicing and MPS divide no bandwidth of a GPU's memory, so no proof would hold; "
    "server.gpu_slice gives a replica a slice of its own (MIG)"
)

# Place -> the fix for a value of another kind, where there is more to it than what is allowed.
_FIXES: Mapping[str, str] = {
    "models.<name>": "write `catalogue: NAME` below {key}",
    "tiers.<name>": "write `{key}: {{priority: NUMBER}}`; below 0 is refused when a model has no room",
    "tenants.<name>.keys": "write a name for each key's purpose, as in `chat: {{}}`; `up` makes the key",
    "tenants.<name>.keys.<name>": "write `{key}: {{}}`; `up` makes the key and keeps it encrypted",
    "tenants.<name>.keys.<name>.sha256": "`sitectl key new` prints a key with its digest; of a key that you have, "
    "`printf %s KEY | sha256sum` prints it",
    **{
        f"models.<name>.overrides.{setting}": "write `{key}: {{value: {got}, reason: WHY}}`"
        for setting in OverridesSpec.model_fields
    },
}


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A site, or what is wrong with it."""

    site: SiteConfig | None
    """With problems: what is right of it, or None where nothing is."""
    problems: tuple[Problem, ...]


def check(values: Mapping[str, Any]) -> Checked:
    """Values against the model. With problems, `site` is what is left when wrong values and sections are taken out."""
    left: Any = plain(values)
    problems: list[Problem] = []
    out: set[Path] = set()
    for _ in range(_ROUNDS):
        site, details = _validated(left)
        if site:
            return Checked(site=site, problems=tuple(dict.fromkeys(problems)))
        fresh = [(path, detail) for path, detail in details if not out or _is_news(path, detail, out)]
        if not fresh:
            break
        left = copy.deepcopy(left)
        for path, detail in fresh:
            problems.append(_describe(path, detail))
            if detail["type"] != "missing":
                _take_out(left, path)
            out.add(path)
    return Checked(site=salvaged(left), problems=tuple(dict.fromkeys(problems)))


def is_misspelt(problem: Problem) -> bool:
    """Whether it is a key that is none, and near to one."""
    return problem.what == _UNKNOWN and bool(problem.near)


def _validated(values: Any) -> tuple[SiteConfig | None, list[tuple[Path, ErrorDetails]]]:
    """The site, or every error at its path."""
    site, details = None, []
    try:
        site = SiteConfig.model_validate(values)
    except ValidationError as error:
        details = [(_path(detail), detail) for detail in error.errors()]
    wrong = {path for path, _ in details}
    details += [
        (path, detail) for path, detail in _coerced(values, SiteKey(annotation=SiteConfig)) if path not in wrong
    ]
    return (None if details else site), details


def _coerced(value: Any, here: SiteKey, path: Path = ()) -> Iterator[tuple[Path, ErrorDetails]]:
    """Text and switches instead of numbers, and the like, which pydantic would accept: "80" is no 80.

    Its strict mode does not, but takes no list for a tuple either; over JSON it does, and not below a validator that
    wraps a section.
    """
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if below := here.below(str(key)):
                yield from _coerced(inner, below, (*path, str(key)))
    elif value is not None:
        kinds = get_args(here.annotation) or (here.annotation,)
        numbers = set(kinds) <= {int, float}
        switch = isinstance(value, bool) and bool not in kinds
        if (numbers and isinstance(value, str)) or (switch and set(kinds) & {int, float}):
            yield path, {"type": "int_type", "loc": path, "msg": "", "input": value}
        elif kinds == (bool,) and not isinstance(value, bool):
            yield path, {"type": "bool_type", "loc": path, "msg": "", "input": value}


def _is_news(path: Path, detail: ErrorDetails, out: set[Path]) -> bool:
    """Whether a section's own rule speaks, which it does only once its keys are right; and not about keys that are out.

    Everything else was reported the first time, or is reported only because values were removed.
    """
    if detail["type"] != "value_error" or path in out:
        return False
    below = {longer[len(path)] for longer in out if len(longer) > len(path) and longer[: len(path)] == path}
    return bool(below) and not any(re.search(rf"\b{re.escape(key)}\b", str(detail["msg"])) for key in below)


def plain(value: Any) -> Any:
    """The value as the engine hands it over in JSON: keys are text in order, a number without a fraction is an int."""
    if isinstance(value, Mapping):
        return {
            key: plain(inner)
            for key, inner in sorted(((str(key), inner) for key, inner in value.items()), key=lambda item: item[0])
        }
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return whole(value)
    return value if isinstance(value, str | int | None) else str(value)


def _path(detail: ErrorDetails) -> Path:
    # pydantic's sign that a mapping's key, not its value, is wrong.
    return tuple(str(part) for part in detail["loc"] if part != "[key]")


def _take_out(values: Any, path: Path) -> None:
    """Remove one value, if there is one; a list's item is emptied, or those behind it would change their numbers."""
    *parents, last = path or ("",)
    for key in parents:
        if isinstance(values, list) and key.isdigit() and int(key) < len(values):
            values = values[int(key)]
        else:
            values = values.get(key) if isinstance(values, dict) else None
    if isinstance(values, dict):
        values.pop(last, None)
    elif isinstance(values, list) and last.isdigit() and int(last) < len(values):
        values[int(last)] = ""


def _describe(path: Path, detail: ErrorDetails) -> Problem:
    here, value = place(path), detail["input"]
    if isinstance(value, str) and is_secret_name(value):
        return Problem(path=path, what="not what it takes", got=HIDDEN, fix="correct it")
    match detail["type"]:
        case "extra_forbidden":
            return _unknown(path)
        case "missing":
            return _missing(path, here)
        case "value_error":
            return refused_value(path, detail)
    if "[key]" in detail["loc"]:
        allowed = str(detail.get("ctx", {}).get("expected", ""))
        return Problem(path=path, what="not a name that may stand here", allowed=allowed, fix="rename it")
    if here is None or not detail["type"].startswith(_KINDS_OF_ERROR):
        return replace(refused_value(path, detail), got=shown(value))
    allowed = f"a section with {here.allowed()}" if here.model else here.allowed()
    near = nearest(value, here.words()) if isinstance(value, str) and not here.model else ""
    what, got = ("has no value", "") if value is None else (_what(here, detail["type"]), shown(value))
    return Problem(
        path=path,
        what=what,
        got="" if what == "empty" else got,
        allowed=allowed,
        near=near,
        fix=f"write {near}" if near else _fix(path, here, value),
    )


def _unknown(path: Path) -> Problem:
    if path[-1] in _SHARING:
        return Problem(path=path, what=_UNKNOWN, fix=_NOT_SHARED)
    above = place(path[:-1])
    words = above.words() if above else []
    near = nearest(path[-1], words)
    if near.endswith(NAMES_ONE) and not path[-1].endswith(NAMES_ONE):
        # Renamed, a password would be taken for the name of its Secret.
        fix = f"write {near} with the name of what holds the secret; if the secret itself was here, {REVOKE}"
    elif near:
        fix = f"rename it to {near}, or take it out"
    elif homes := _homes(path[-1]):
        fix = f"move it to {' or '.join(homes)}, or take it out"
    else:
        fix = "take it out; every key: python -m sitectl docs configuration"
    allowed = "" if near and len(words) > _MOST_WORDS else ", ".join(words)
    return Problem(path=path, what=_UNKNOWN, allowed=allowed, near=near, fix=fix)


def _missing(path: Path, here: SiteKey | None) -> Problem:
    allowed = here.allowed() if here else ""
    if here and here.model:
        allowed = f"a section with {allowed}"
    meaning = f" ({here.meaning.rstrip('.')})" if here and here.meaning else ""
    return Problem(path=path, what=_MISSING, allowed=allowed, fix=f"add {path[-1]}{meaning}")


def _what(here: SiteKey, kind: str) -> str:
    """What is wrong, out of pydantic's name of the error."""
    if here.model or kind.startswith(("dict", "model")):
        return "not a section of keys"
    if kind.startswith(("greater_than", "less_than")):
        return "out of range"
    if kind == "string_too_short":
        return "too short"
    if kind == "too_short":
        return "empty"
    if kind == "too_long":
        return "too many"
    if kind == "literal_error":
        return "not one of the words that it takes"
    if kind.startswith(("tuple", "list")):
        return "not a list"
    if kind == "string_pattern_mismatch":
        return "not in the form that it takes"
    return f"not {here.kind()}"


def _fix(path: Path, here: SiteKey, value: Any) -> str:
    """What to do about a value of the wrong kind or size."""
    if here.pattern in _FIXES:
        return _FIXES[here.pattern].format(key=path[-1], got=shown(value))
    if here.model:
        return f"write keys below {path[-1]}, indented by two more spaces"
    return _fix_of_kind(here, value) or ("give it a value" if value is None else "correct it") + _otherwise(here)


def _fix_of_kind(here: SiteKey, value: Any) -> str:
    """What to do about a value whose right form follows from the wrong one; else nothing."""
    kind = get_origin(here.annotation) or here.annotation
    if kind is dict and isinstance(value, list):
        return "write each name as a key, `NAME:` and its section below, instead of a list"
    if kind is tuple and isinstance(value, str | int):
        return f"write a list: [{value}]"
    if kind is bool and value in ("true", "false"):
        return "take the quotes off"
    if kind in (int, float) and isinstance(value, str):
        return _fix_of_number(here, value)
    if kind is str and isinstance(value, bool | int | float):
        if right := forms.example(here.pattern, shown(value)):
            return f'write it like "{right}", in quotes'
        return f'put it in quotes: "{shown(value)}"'
    if here.is_share() and isinstance(value, int | float) and 1 < value <= 100:
        return f"write {value / 100:g} if {shown(value)} % is meant"
    return ""


def _fix_of_number(here: SiteKey, text: str) -> str:
    """What to do about a text in the place of a number; nothing where no number is in it."""
    if _NUMBER.fullmatch(text):
        return "take the quotes off"
    if _PARTED.fullmatch(text):
        return f"write {re.sub('[^0-9.]', '', text)}, without separators"
    if here.is_share() and _PERCENT.fullmatch(text):
        return f"write {float(text.rstrip(' %')) / 100:g}"
    return "write the number alone, without its unit" if _WITH_UNIT.fullmatch(text) else ""


def _otherwise(here: SiteKey) -> str:
    """What becomes of a key that is left out, or what it is for if it must be given."""
    if not here.field:
        return ""
    if here.field.is_required():
        return f" ({here.meaning.rstrip('.')})" if here.meaning else ""
    default = here.field.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, BaseModel) or default in ((), {}, None):
        return ", or leave the key out"
    number = isinstance(default, int | float) and not isinstance(default, bool)
    text = number_text(default) if number else shown(default).strip("'")
    return f", or leave the key out for its default, {text}"


def _homes(key: str) -> list[str]:
    """Where a key that is unknown here has its place, if there are not many."""
    patterns: list[str] = []

    def visit(here: SiteKey) -> None:
        inner = here.model
        if inner is None:
            below = here.below("name") if here.annotation and not isinstance(here.annotation, type) else None
            if below and below.model:
                visit(below)
            return
        for name in inner.model_fields:
            child = here.below(name)
            # A model that may be ordered, a canary and dedicated replicas have the keys of a served one, which is the
            # place to name.
            if child is None or child.pattern == "orderable" or name in ("canary", "dedicated"):
                continue
            if name == key:
                patterns.append(child.pattern)
            visit(child)

    top = place(())
    if top:
        visit(top)
    return patterns if len(patterns) <= _MOST_HOMES else []
