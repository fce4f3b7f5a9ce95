"""Hours of a day in which less comes than in the busiest."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from floor.problems import WrongValueError

_Range = Annotated[str, StringConstraints(pattern=r"^([01]?[0-9]|2[0-3])-([01]?[0-9]|2[0-4])$")]


def hours_of(text: str) -> list[int]:
    """The hours that begin in a range: from 22 to 5 in `22-06`."""
    begin, end = map(int, text.split("-"))
    return [hour % 24 for hour in range(begin, end if end > begin else end + 24)]


def _apart(given: dict[str, float]) -> dict[str, float]:
    hours = [hour for text in given for hour in hours_of(text)]
    if twice := sorted({hour for hour in hours if hours.count(hour) > 1}):
        raise WrongValueError(f"the hour from {twice[0]:02}:00 is in two ranges", fix="let no two ranges overlap")
    return given


QuietHours = Annotated[dict[_Range, Annotated[float, Field(ge=0, lt=1)]], AfterValidator(_apart)]
"""Range of hours, such as `22-06` -> share of the busiest hour's requests that comes in them."""
