"""Hours of a day in which less comes than in the busiest."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from floor.problems import WrongValueError

_RANGE = re.compile(r"([01]?[0-9]|2[0-3])-([01]?[0-9]|2[0-4])")


def hours_of(text: str) -> list[int]:
    """The hours that begin in a range: from 22 to 5 in `22-06`."""
    begin, end = map(int, text.split("-"))
    return [hour % 24 for hour in range(begin, end if end > begin else end + 24)]


def _ranges(given: dict[str, float]) -> dict[str, float]:
    for text in given:
        match = _RANGE.fullmatch(text)
        if match is None or int(match[1]) == int(match[2]):
            raise WrongValueError(
                f"'{text}' is no range of hours",
                allowed="FROM-TO, two hours from 0 to 24 that differ",
                fix="write it as 22-06; 0-24 is the whole day",
            )
    hours = [hour for text in given for hour in hours_of(text)]
    if twice := sorted({hour for hour in hours if hours.count(hour) > 1}):
        raise WrongValueError(f"the hour from {twice[0]:02}:00 is in two ranges", fix="let no two ranges overlap")
    return given


QuietHours = Annotated[dict[str, Annotated[float, Field(ge=0, lt=1)]], AfterValidator(_ranges)]
"""Range of hours, such as `22-06` -> share of the busiest hour's requests that comes in them."""
