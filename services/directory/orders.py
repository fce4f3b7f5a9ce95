"""What an operator may ask for, checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from services.directory.owners import Owner
from services.directory.variables import ACTOR_HEADER, SOURCE_HEADER
from services.failure import ServiceError, shown

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_YEAR_S = 365 * 24 * 3600
_LONGEST_LIFE_S, _LONGEST_OVERLAP_S = 10 * _YEAR_S, _YEAR_S
_ALLOWED = {
    "tenant": "the name of a tenant of the site's file",
    "name": "1 to 40 lower-case letters, digits and inner dashes",
    "expires_in_s": f"a whole number of seconds from 1 to {_LONGEST_LIFE_S}, or null for a key without an end",
    "models": "a list with one model of the tenant or more, or null for all of them",
    "owner": "a person's mark of 8 characters, and the most keys of theirs that may work",
    "overlap_s": f"a whole number of seconds from 0 to {_LONGEST_OVERLAP_S}",
    "model": "the name of a model",
    "note": "a line of at most 300 characters",
    "state": "proposed or declined",
    "why": "a line of 1 to 500 characters",
}
# It is quoted in a commit and on pages, as one line whose order is what it looks like.
_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*")
# As a directory makes it, or as `sitectl key new` does.
_WHOLE_KEY = re.compile(r"sk-[\w-]{20,}")
# Of a header, which the audit keeps.
_ACTOR = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,58}[\x21-\x7e])?")


class KeyOrder(BaseModel):
    """A key that is to be made."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tenant: str
    name: str
    expires_in_s: Annotated[int, Field(ge=1, le=_LONGEST_LIFE_S)] | None = None
    models: Annotated[list[str], Field(min_length=1)] | None = None
    owner: Owner | None = None

    def check(self, known: Mapping[str, list[str]]) -> None:
        """Raise ServiceError for a name that no key may have, and for what `scope_problems` finds."""
        wrong = [] if NAME.fullmatch(self.name) else [problem("name", "not a name", self.name, _ALLOWED["name"])]
        if self.owner and not self.owner.has(self.name):
            wrong.append(problem("name", "not the owner's", self.name, f"a name that ends in -{self.owner.mark}"))
        require([*wrong, *scope_problems(self.tenant, self.models, known)])


class RotationOrder(BaseModel):
    """How long a rotated key goes on working."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    overlap_s: Annotated[int, Field(ge=0, le=_LONGEST_OVERLAP_S)]
    owner: Owner | None = None
    """Who may rotate it, where that is a person."""


def scope_problems(tenant: str, models: list[str] | None, known: Mapping[str, list[str]]) -> list[str]:
    """What is wrong where the site's file lacks the tenant, or does not let it use one of the models."""
    if tenant not in known:
        return [problem("tenant", "no tenant of the site's file", tenant, _some(known))]
    foreign = [model for model in models or () if model not in known[tenant]]
    return [problem("models", f"no model of {tenant}", model, _some(known[tenant])) for model in foreign[:5]]


def line_problems(field: str, text: str) -> list[str]:
    """What is wrong with a text that is to be one line, and is kept for good."""
    if _WHOLE_KEY.search(text):
        return [problem(field, "has a key in it", "sk-(hidden)", "a text without one")]
    allowed = "one line, without characters that control or turn text"
    return [] if _LINE.fullmatch(text) else [problem(field, "not one line", text, allowed)]


def require(problems: list[str]) -> None:
    """Raise ServiceError, which names all of them, where there are any."""
    if problems:
        fix = "correct what is named, or add the tenant or its models to the site's file and run pulumi up"
        raise ServiceError(422, "invalid_request", "; ".join(problems), fix=fix)


Order = TypeVar("Order", bound=BaseModel)


def parsed(kind: type[Order], body: bytes) -> Order:
    """The body of a request. Raises ServiceError, which names every field that is wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        wrong = "; ".join(_of_pydantic(kind, detail) for detail in error.errors(include_url=False))
        raise ServiceError(422, "invalid_request", wrong, fix="correct what is named") from None


def _of_pydantic(kind: type[BaseModel], error: Any) -> str:
    fields, what = ", ".join(kind.model_fields), error["msg"].lower()
    if not error["loc"]:
        return problem("body", what, "another form", f"a JSON object of {fields}")
    name = str(error["loc"][0])
    got = "nothing" if error["type"] == "missing" else error["input"]
    allowed = _ALLOWED.get(name, "as the page has it") if name in kind.model_fields else f"only {fields}"
    return problem(shown(name)[1:-1], what, got, allowed)


@dataclass(frozen=True)
class AskedBy:
    """Whose request it is, for the audit."""

    actor: str
    source: str
    """Through what they ask, in its own words; empty where it is not named."""


def asked_by(headers: Mapping[str, str]) -> AskedBy:
    """Who asks. Raises ServiceError."""
    source = headers.get(SOURCE_HEADER)
    return AskedBy(_named(ACTOR_HEADER, headers.get(ACTOR_HEADER)), _named(SOURCE_HEADER, source) if source else "")


def _named(header: str, text: str | None) -> str:
    if text is None or not _ACTOR.fullmatch(text) or shown(text) != repr(text):
        allowed = "1 to 60 printable ASCII characters, and no key"
        what = problem(header, "does not name who asks", text or "nothing", allowed)
        raise ServiceError(422, "invalid_request", what, fix="send the name of a person or program in it")
    return text


def problem(field: str, what: str, got: object, allowed: str) -> str:
    """What is wrong with a field, in one form."""
    return f"{field}: {what}, got {shown(got)}, allowed: {allowed}"


def _some(names: Mapping[str, object] | list[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "") or "none yet"
