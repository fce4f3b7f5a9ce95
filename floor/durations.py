"""Durations as Go's time.ParseDuration reads them: `1m30s`, `500ms`, `0`."""

from __future__ import annotations

import re

# Go knows both signs of micro, U+00B5 and U+03BC (src/time/format.go, unitMap).
_SECONDS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_STEP = rf"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)({'|'.join(_SECONDS)})"

DURATION = re.compile(rf"[+-]?(?:(?:{_STEP})+|0)")
"""A whole text that is one, below zero too."""


def is_duration(text: str) -> bool:
    """Whether Go reads the text as a time that is not below zero."""
    return DURATION.fullmatch(text) is not None and not text.startswith("-")


def seconds_of(text: str) -> float:
    """Seconds of a duration that `is_duration`; what cannot be read of another text counts for nothing."""
    return sum(float(count) * _SECONDS[unit] for count, unit in re.findall(_STEP, text))


def duration_of(seconds: int) -> str:
    """Whole seconds as Go writes them, such as 1h0m0s (src/time/time.go, Duration.String).

    A controller that writes an object back leaves this form as it is, so the next preview shows no change.
    """
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minute}m{second}s"
    return f"{minute}m{second}s" if minute else f"{second}s"
