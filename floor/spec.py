"""The floor under every Spec: what a site may set, the names that it may choose, and the limits of other systems."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema

from floor.problems import WrongValueError

# Kubernetes counts replicas in int32.
MOST_REPLICAS = 2**31 - 1
# A duration of the Gateway API has five digits: `^([0-9]{1,5}(h|m|s|ms)){1,4}$` (CRDs of Envoy Gateway 1.9.1).
MOST_SECONDS = 99_999
# Envoy's circuit breakers count in uint32 (BackendTrafficPolicy of Envoy Gateway 1.9.1, circuitBreaker).
MOST_STREAMS = 2**32 - 1
# Values that one rule may allow (SecurityPolicy of Envoy Gateway 1.9.1, authorization.rules.principal.headers.values).
MOST_VALUES = 256

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def is_plain_name(name: str) -> bool:
    """Whether a site may choose this name."""
    return _NAME.fullmatch(name) is not None


def fitting_name(name: str) -> str:
    """The name that a site may choose in the place of this one; nothing where no letter is left."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")


def _plain_name(name: str) -> str:
    if not is_plain_name(name):
        fitting = fitting_name(name)
        raise WrongValueError(
            "this name is not 1 to 40 lower-case letters, digits and inner dashes, which Kubernetes objects carry",
            fix=f"rename it{f', for example to {fitting}' if fitting else ''}",
        )
    return name


Name = Annotated[str, AfterValidator(_plain_name), WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"})]
"""A name that a site chooses and that becomes part of the names of Kubernetes objects."""


def _day(text: str) -> str:
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date().isoformat()  # noqa: DTZ007 - a day has no zone
    except ValueError:
        day = ""
    if day != text:
        raise WrongValueError(
            "is no day", got=f"'{text}'", allowed="year, month and day", fix='write it as "2026-12-01"'
        )
    return text


Day = Annotated[str, AfterValidator(_day)]
"""A day of UTC: year, month and day, in quotes."""


class Spec(BaseModel):
    """What a site may set of one thing. Unknown keys are errors; values never change after loading.

    The docstring below a key is its meaning in the reference (`stacks.site.docstrings`).
    """

    # One validator for a whole site instead of one more for each section that it is made of.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def refuse_unread(spec: Spec, *, instead: str) -> None:
    """For a section with `run_by: external`: it reads no other key.

    Raises WrongValueError where one is set. instead: the value of `run_by` that reads them.
    """
    if others := sorted(spec.model_fields_set - {"run_by"}):
        raise WrongValueError(
            f"{', '.join(others)} set, and run_by external reads nothing of it",
            fix=f"set run_by to {instead}, or take it out",
        )
