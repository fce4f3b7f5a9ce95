"""How Pulumi's engine reads an unquoted YAML scalar, and which scalars other parsers read differently.

The engine reads stack files with Go's yaml.v3 (resolve.go of v3.0.1), whose rules are between YAML 1.1 and 1.2. The
offline loader follows it, and refuses the scalars on which editors, linters and the engine disagree.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from decimal import Decimal

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_SWITCHES = {
    word: meaning
    for base, meaning in (
        ("y", "true"),
        ("yes", "true"),
        ("on", "true"),
        ("n", "false"),
        ("no", "false"),
        ("off", "false"),
    )
    for word in (base, base.capitalize(), base.upper())
}
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_OTHER_BASE = re.compile(r"[-+]?0([xX][0-9a-fA-F_]*[0-9a-fA-F]|[oO][0-7_]*[0-7]|[bB][01_]*[01])_*")
_SIXTIES = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

# What the engine keeps as a whole number; beyond, it rounds.
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
# No number needs more, and Python itself refuses to read some thousand digits.
_MOST_DIGITS = 300
# Beyond it Go writes a number of JSON with an exponent.
_LARGEST_WRITTEN_OUT = 1e21


def meaning(text: str) -> str | int | float | bool | None:
    """What an unquoted scalar is to the engine. Whole numbers are int however they are written: 1.5e+9 is one."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _MOST_DIGITS:
        return text
    plain = text.replace("_", "") if text[0] in "+-0123456789" else text
    if is_day(text):
        return _date(text)
    if _OTHER_BASE.fullmatch(text):
        return int(plain, 0)
    if _OCTAL.fullmatch(plain):
        return int(plain, 8)
    if _WHOLE.fullmatch(text):
        number = int(plain)
        return number if _SMALLEST <= number <= _LARGEST else whole(float(number))
    if _DECIMAL.fullmatch(plain):
        return whole(float(plain))
    return text


def is_day(text: str) -> bool:
    """Whether an unquoted scalar is a day or a point in time to readers of YAML."""
    return bool(_DATE.fullmatch(text))


def _date(text: str) -> str:
    """A day becomes a point in time, as the engine writes one; other points in time stay as they are here."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007 - a day has no zone
        return f"{day} 00:00:00 +0000 UTC"
    except ValueError:
        return text


def _looks_like_number(text: str) -> bool:
    return any(form.fullmatch(text) for form in (_WHOLE, _DECIMAL, _OTHER_BASE, _SIXTIES))


def whole(number: float) -> float | int:
    """The number as the engine hands it over in JSON: without a fraction it is an int."""
    # Through its digits, because Go writes the shortest ones that mean this float.
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < _LARGEST_WRITTEN_OUT else number


def trap(text: str) -> tuple[str, str] | None:
    """(what is unclear, the fix) of an unquoted scalar that YAML parsers read differently, or None."""
    if _looks_like_number(text) and len(text) > _MOST_DIGITS:
        return f"a number of {len(text)} characters", "write fewer digits, or put it in quotes if it is text"
    if text in _SWITCHES:
        return (
            f"{text} without quotes is text to the engine and {_SWITCHES[text]} to other readers of YAML",
            f'write "{text}" in quotes if it is a word, or {_SWITCHES[text]} if it is a switch',
        )
    if _INFINITE.fullmatch(text):
        return f"{text} is no finite number", "write a number"
    if _LEADING_ZERO.fullmatch(text):
        digits = text.lstrip("+-0_").replace("_", "") or "0"
        return (
            f"{text} begins with a zero, which makes it an octal number to some readers of YAML",
            f'write {digits} if it is a number, or "{text}" in quotes if it is text',
        )
    if _OTHER_BASE.fullmatch(text):
        digits = str(int(text.replace("_", ""), 0))
        return (
            f"{text} is a number to some readers of YAML and text to others",
            f'write {digits} if it is a number, or "{text}" in quotes if it is text',
        )
    if _WHOLE.fullmatch(text) and not _SMALLEST <= int(text.replace("_", "")) <= _LARGEST:
        return (
            f"{text} is beyond {_LARGEST}, and the engine rounds it",
            "write a smaller number, one with an exponent, or put it in quotes if it is text",
        )
    number = text.replace("_", "")
    if _DECIMAL.fullmatch(number) and not math.isfinite(float(number)):
        return f"{text} is no finite number", "write a smaller number"
    if _SIXTIES.fullmatch(text):
        return (
            f"{text} is text to the engine and a number of base 60 to other readers of YAML",
            f'write "{text}" in quotes, or a plain number',
        )
    if is_day(text):
        return f"{text} without quotes is a date to the engine", f'write "{text}" in quotes'
    return None
