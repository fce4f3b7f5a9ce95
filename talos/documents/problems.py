"""Mistakes in what a machine is to be configured with, each with its place, and the error that holds all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from floor.problems import Path, Problem

Identity = tuple[str, str]
"""(kind, name) of a document; the name is empty where its kind is there once."""


@dataclass(frozen=True, kw_only=True)
class ConfigProblem(Problem):
    """A problem of a machine's config. `path` counts from the document; from the node or cluster without one.

    What was got is left out where it may be a secret.
    """

    path: Path = ()
    fix: str = ""
    """Empty: give the field a value that is allowed."""
    node: str = ""
    """Name of the machine; empty for all of them."""
    patch: tuple[str, str] | None = None
    """Name and level of the patch that the mistake is in."""
    document: Identity | None = None

    def beneath(self, *keys: str) -> ConfigProblem:
        """The same mistake, its path counted from further up."""
        return replace(self, path=(*keys, *self.path))

    def of(self, document: Identity) -> ConfigProblem:
        return replace(self, document=document)

    def on(self, node: str) -> ConfigProblem:
        return replace(self, node=node)

    @property
    def place(self) -> str:
        """For people: `hgx-1, LinkConfig eno1, routes[0].gateway`."""
        patch = "patch {} ({})".format(*self.patch) if self.patch else ""
        document = shown(self.document) if self.document else ""
        return ", ".join(filter(None, (self.node, patch, document, _dotted(self.path))))

    @property
    def step(self) -> str:
        """The fix in words."""
        return self.fix or value_that_is_allowed(self.path[-1:])

    def __str__(self) -> str:
        return f"{': '.join(filter(None, (self.place, self.sentence)))}\n  fix: {self.step}"


class ConfigError(ValueError):
    """What cannot be made, for one or several reasons; each states what, got, allowed, fix. `problems` has them all.

    Values of fields that may be secret are never quoted.
    """

    def __init__(self, what: str, *, fix: str) -> None:
        self._hold((ConfigProblem(what=what, fix=fix),))

    @classmethod
    def of(cls, problems: Sequence[ConfigProblem]) -> ConfigError:
        """One error for all problems, in the order given."""
        error = cls.__new__(cls)
        error._hold(tuple(dict.fromkeys(problems)))
        return error

    def _hold(self, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        self.what = "\n".join(": ".join(filter(None, (problem.place, problem.what))) for problem in problems)
        self.fix = "\n".join(problem.step for problem in problems)


def require_none(problems: Sequence[ConfigProblem]) -> None:
    """ConfigError with all of them, if there is one."""
    if problems:
        raise ConfigError.of(problems)


def shown(of: Identity) -> str:
    """An identity for a message: `LinkConfig eth0`, `TimeSyncConfig`."""
    return " ".join(filter(None, of))


def value_that_is_allowed(keys: Sequence[str]) -> str:
    """The step for a value that does not fit, by the last keys of its path."""
    return f"give {'.'.join(keys)} a value that is allowed"


def _dotted(path: Sequence[str]) -> str:
    """A path as people write it: routes, 0, gateway is `routes[0].gateway`."""
    return "".join(f"[{key}]" if key.isdecimal() else f".{key}" for key in path).removeprefix(".")
