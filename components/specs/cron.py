"""Times of the week as cron has them, by the rules of robfig/cron v3.0.1 (parser.go), which KEDA reads with."""

from __future__ import annotations

import re

from floor.problems import WrongValueError

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
# Name, least, most, and names of values from the least on.
_FIELDS: tuple[tuple[str, int, int, list[str]], ...] = (
    ("minute", 0, 59, []),
    ("hour", 0, 23, []),
    ("day of the month", 1, 31, []),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 6, _DAYS),
)
_LONGEST = dict(enumerate((31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), start=1))
_ENTRY = re.compile(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/([0-9]+))?")


def cron_time(text: str) -> str:
    """The text, if it is a time that comes. Raises WrongValueError."""
    words = text.split()
    if len(words) != len(_FIELDS):
        raise WrongValueError(
            "is no time of cron's",
            got=text,
            allowed="minute, hour, day of the month, month and day of the week",
            fix="write five fields, such as 45 7 * * 1-5",
        )
    _, _, days, months, _ = (_values(word, *field) for word, field in zip(words, _FIELDS, strict=True))
    # A day of the week that is given is another way to come.
    if words[4] in ("*", "?") and min(days) > max(_LONGEST[month] for month in months):
        raise WrongValueError("never comes: no such month has such a day", got=text, fix="correct day or month")
    return text


def _values(word: str, name: str, least: int, most: int, names: list[str]) -> set[int]:
    values: set[int] = set()
    for entry in word.split(","):
        match = _ENTRY.fullmatch(entry)
        first, last = (_number(match[part], least, names) for part in (1, 2)) if match else (None, None)
        step = int(match[3]) if match and match[3] else 1
        if match and match[1] is None:
            first, last = least, most
        elif first is not None and last is None and match and match[2] is None:
            last = most if match[3] else first
        if first is None or last is None or not least <= first <= last <= most or not step:
            sunday = "; Sunday is 0" if name == "day of the week" and "7" in word else ""
            raise WrongValueError(
                f"has no {name} that cron knows",
                got=word,
                allowed=f"* or numbers from {least} to {most}{sunday}, as 1-5, 0,30 or */15",
                fix="write 0 for Sunday" if sunday else f"correct the {name}",
            )
        values.update(range(first, last + 1, step))
    return values


def _number(word: str | None, least: int, names: list[str]) -> int | None:
    if word is None:
        return None
    if word.lower() in names:
        return least + names.index(word.lower())
    return int(word) if word.isascii() and word.isdigit() else None
