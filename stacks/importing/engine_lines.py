"""vLLM's command line as values: the model, and each flag by its long name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stacks.facts import engine_flags

# What vLLM takes for a count (0.32, engine/arg_utils.py, human_readable_int): a small letter is a power of 1,000.
_COUNT = re.compile(r"(\d+)([KMGT]?)|(\d+\.\d+|\d+)([kmgt])")
_NEGATIVE = re.compile(r"-\d+")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_LONGEST = 20
_AUTOMATIC = ("auto", "-1")


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

    @property
    def shortens(self) -> bool:
        """Whether vLLM takes the longest context that fits."""
        return self.values.get("--max-model-len") in _AUTOMATIC

    def count(self, flag: str) -> int | None:
        """A whole number, also as 32k; None where the flag is not given. Raises WrongLineError."""
        text = self.values.get(flag)
        if text is None:
            return None
        match = _COUNT.fullmatch(text) if len(text) < _LONGEST else None
        if match is None:
            raise WrongLineError(f"{flag} is no whole number: {text[:_LONGEST] or 'nothing'}")
        number, unit = match[1] or match[3], match[2] or match[4]
        power = _POWERS[unit.lower()] if unit else 0
        count = int(float(number) * 1000**power) if match[4] else int(number) * 1024**power
        if count < 1:
            raise WrongLineError(f"{flag} is below 1: {text}")
        return count

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
    without = {*flags.free_switches, *flags.switches}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-"):
            loose.append(word)
            continue
        flag = flags.read(word)
        value = word.partition("=")[2]
        if flag.name and not word.startswith("--") and not value:
            # Its value may be right behind it: -O3.
            value = word.removeprefix(flags.short_name(word))
        if "=" not in word and not value and flag.name not in without:
            more = _values_behind(words[at:], several=flag.name in flags.lists)
            value, at = more[0] if more else "", at + len(more)
        if not flag.name:
            unknown.append(flag.written)
        elif word.startswith("--no-"):
            values.pop(flag.name, None)
        else:
            values[flag.name + flag.keys] = value
    model = values.get("--model") or next(iter(loose), "")
    if not model:
        raise WrongLineError("it names no model")
    return EngineLine(model=model, values=values, unknown=tuple(unknown))


def _values_behind(words: Sequence[str], *, several: bool) -> list[str]:
    """Words that belong to the flag before them: a number may be negative, a list ends at the next flag."""
    end = next(
        (at for at, word in enumerate(words) if word.startswith("-") and not _NEGATIVE.fullmatch(word)), len(words)
    )
    return list(words[: end if several else min(end, 1)])
