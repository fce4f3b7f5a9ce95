"""Reads `engine_flags.yaml`: every flag of the engines, and what sets it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from stacks.facts.records import Record, read_facts

# As Python reads them, which the engines' command lines are written in.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}(_[0-9]{1,18})*")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

FILE = Path(__file__).parent / "engine_flags.yaml"


class DecidedFlags(Record):
    """Flags that something else than `extra_args` decides."""

    by: str = Field(pattern=r"^(catalogue|proof|platform|adapters|(server|overrides)\.[a-z_]+)$")
    """A key of the site below `models.<name>`, or who decides instead of a site."""
    why: str = ""
    """The reason, where `by` alone does not show it."""
    flags: tuple[str, ...]
    """The flags by their long names."""


class Value(Record):
    """What a flag takes."""

    kind: Literal["text", "integer", "number", "json"] = "text"
    """The form of the value; `json` is an object."""
    words: tuple[str, ...] = ()
    """The only words of a text, or what is taken beside a number."""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """The number is larger than this."""
    why: str = ""
    """The reason of a bound, where the engine itself has none."""
    lines: bool = False
    """Whether a text may have more than one line."""

    def fits(self, text: str) -> bool:
        """Whether the engine starts with it."""
        if text in self.words:
            return True
        match self.kind:
            case "json":
                return _is_object(text)
            case "integer":
                return _INTEGER.fullmatch(text.strip(" ")) is not None and self._within(int(text))
            case "number":
                return _NUMBER.fullmatch(text.strip(" ")) is not None and self._within(float(text))
        return not self.words and (self.lines or text.isprintable())

    def _within(self, number: float) -> bool:
        low = self.least is None or number >= self.least
        return low and (self.most is None or number <= self.most) and (self.above is None or number > self.above)

    @property
    def allowed(self) -> str:
        """What fits, in words."""
        bounds = [
            f"{word} {bound:.15g}"
            for word, bound in (("above", self.above), ("from", self.least), ("up to", self.most))
            if bound is not None
        ]
        kinds = {"integer": "a whole number", "number": "a number", "json": "a JSON object", "text": "text on one line"}
        if self.words and self.kind == "text":
            return ", ".join(self.words)
        return " ".join([kinds[self.kind], *bounds])

    @property
    def example(self) -> str:
        """A value that fits."""
        if self.words and self.kind == "text":
            return self.words[0]
        bound = self.least if self.least is not None else self.most
        number = f"{bound:.15g}" if bound is not None else "1"
        return {"json": "{}", "text": "VALUE"}.get(self.kind, number)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


class EngineFlags(Record):
    """All flags of one engine."""

    short: dict[str, str]
    """Short name -> long name."""
    switches: tuple[str, ...] = ()
    """Flags that a site may not give and that take no value."""
    lists: tuple[str, ...] = ()
    """Flags that take several words."""
    free_switches: tuple[str, ...]
    """Flags that a site may give and that take no value."""
    free_values: dict[str, Value]
    """Flags that a site may give, each with what its value may be."""
    decided: tuple[DecidedFlags, ...]
    """All others."""

    @model_validator(mode="after")
    def _named_once(self) -> EngineFlags:
        written = [*self.free_switches, *self.free_values, *(flag for row in self.decided for flag in row.flags)]
        twice = sorted({flag for flag in written if written.count(flag) > 1})
        if twice:
            raise ValueError(f"{FILE.name}: written twice: {', '.join(twice)}")
        if missing := sorted({*self.switches, *self.lists} - {*written}):
            raise ValueError(f"{FILE.name}: flags of a form, and nothing decides them: {', '.join(missing)}")
        return self

    @cached_property
    def decision(self) -> Mapping[str, DecidedFlags | None]:
        """Long name -> what decides it, None for a free one."""
        free = dict.fromkeys((*self.free_switches, *self.free_values))
        return free | {flag: row for row in self.decided for flag in row.flags}

    def read(self, item: str) -> Flag:
        """The flag that the engine would take `item` for, in every form that its command line knows."""
        written = re.split(r"[=\s]", item, maxsplit=1)[0]
        if not written.startswith("--"):
            return Flag(written=written, name=self.short.get(self.short_name(written), ""))
        # Keys of a JSON value may follow the first dot: --structured-outputs-config.backend=xgrammar
        name, dot, keys = written.partition(".")
        name = name.replace("_", "-")
        return Flag(written=written, name=self._by_long_name(name), keys=dot + keys)

    def short_name(self, written: str) -> str:
        """The longest short name that it begins with, or nothing; a value or `.key` may follow at once."""
        return max((short for short in self.short if written.startswith(short)), key=len, default="")

    def _by_long_name(self, name: str) -> str:
        """A switch may be turned off by `--no-`, and a name may end where no other goes on like it."""
        for candidate in (name, name.replace("--no-", "--", 1)):
            if candidate in self.decision:
                return candidate
        started = {flag for flag in self.decision if flag.startswith(name) or f"--no-{flag[2:]}".startswith(name)}
        return started.pop() if len(started) == 1 and len(name) > len("--") else ""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One item of a command line, as the engine reads it."""

    written: str
    """The name as the site writes it, without the value."""
    name: str
    """Long name; empty for a flag that the engine does not know."""
    keys: str = ""
    """`.key` of a JSON value, or nothing."""

    @property
    def spelled_out(self) -> bool:
        """Whether it is written by its long name, which is the one form that `extra_args` takes."""
        return self.written in (self.name + self.keys, f"--no-{self.name[2:]}")


@cache
def load() -> Mapping[str, EngineFlags]:
    """Engine -> its flags."""
    return read_facts(FILE, dict[str, EngineFlags])
