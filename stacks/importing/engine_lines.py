"""vLLM's command line as values: the model, and each flag by its long name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stacks.facts import engine_flags

# What vLLM takes for a count (0.32, engine/arg_utils.py, human_readable_int): a small letter is a power of 1,000.
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}


class WrongLineError(Exception):
    """The engine would refuse the line; the message has the flag."""


@dataclass(frozen=True, kw_only=True)
class EngineLine:
    """What a command line sets."""

    model: str
    """Repository, or a path in the container."""
    values: Mapping[str, str]
    """Long name of each flag -> its value; nothing for a switch."""
    unknown: tuple[str, ...]
    """Flags that the pinned release does not have."""

    def count(self, flag: str) -> int | None:
        """A whole number, also as 32k; None where the flag is not given, or `auto`. Raises WrongLineError."""
        text = self.values.get(flag)
        if text in (None, "auto", "-1"):
            return None
        match = _COUNT.fullmatch(text)
        if match is None:
            raise WrongLineError(f"{flag} is no whole number: {text or 'nothing'}")
        number, unit = float(match[1]), match[2]
        if not unit:
            return int(number)
        return int(number * (1000 if unit.islower() else 1024) ** _POWERS[unit.lower()])

    def share(self, flag: str, usual: float) -> float:
        """A number above 0 and up to 1. Raises WrongLineError."""
        text = self.values.get(flag)
        if text is None:
            return usual
        try:
            share = float(text)
        except ValueError:
            share = 0.0
        if not 0 < share <= 1:
            raise WrongLineError(f"{flag} is no number above 0 and up to 1: {text or 'nothing'}")
        return share


def engine_line(words: Sequence[str]) -> EngineLine:
    """The line that follows `vllm serve`. Raises WrongLineError without a model."""
    flags = engine_flags.load()["vllm"]
    values, unknown, loose = dict[str, str](), list[str](), list[str]()
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-"):
            loose.append(word)
            continue
        flag = flags.read(word)
        value = word.partition("=")[2]
        if "=" not in word and at < len(words) and not words[at].startswith("-") and _takes_value(flag.name):
            value, at = words[at], at + 1
        if not flag.name:
            unknown.append(flag.written)
        elif not word.startswith("--no-"):
            values[flag.name + flag.keys] = value
    model = values.get("--model") or next(iter(loose), "")
    if not model:
        raise WrongLineError("it names no model")
    return EngineLine(model=model, values=values, unknown=tuple(unknown))


def _takes_value(name: str) -> bool:
    """Switches do not; those that the platform decides about have names of a few kinds."""
    flags = engine_flags.load()["vllm"]
    return name not in flags.free_switches and not name.startswith(("--enable-", "--disable-", "--enforce-"))
