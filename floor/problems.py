"""A mistake in a site as its engineer reads it, and the error that contains all of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from floor.secret_texts import HIDDEN, is_secret_name, shown_without_secrets

Path = tuple[str, ...]
"""Keys from the top of the site's section down; a list's item is its index."""

_LONGEST_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One mistake: where, what is wrong, what was got, what is allowed, what to do."""

    path: Path
    """Empty for the whole site."""
    what: str
    fix: str
    got: str = ""
    """As shown to people; a secret is hidden already."""
    allowed: str = ""
    near: str = ""
    """The allowed value that was probably meant."""
    file: str = ""
    """Where the mistake is, if in another file than the site's own."""
    line: int | None = None
    of_whole_file: bool = False
    """Whether the engine refuses the whole file for it, also where it is outside of the site's section."""

    @property
    def key(self) -> str:
        """Dotted path, empty for the whole site."""
        return ".".join(part if len(part) <= _LONGEST_SHOWN else f"{part[:_LONGEST_SHOWN]}..." for part in self.path)

    def redacted(self) -> Problem:
        """The same without anything that looks like a secret, in names or texts."""
        return replace(
            self,
            path=tuple(shown_without_secrets(part) for part in self.path),
            what=shown_without_secrets(self.what),
            fix=shown_without_secrets(self.fix),
            got=shown_without_secrets(self.got),
            allowed=shown_without_secrets(self.allowed),
            near=shown_without_secrets(self.near),
        )

    def at(self, line: int | None) -> Problem:
        """The same, with its line where it has none yet."""
        return self if self.line is not None or self.file else replace(self, line=line)

    @property
    def sentence(self) -> str:
        """`what; got; did you mean; allowed`."""
        got = f"; got {self.got}" if self.got else ""
        near = meant(self.near)
        allowed = f"{'' if self.near else ';'} allowed: {self.allowed}" if self.allowed else ""
        return f"{self.what}{got}{near}{allowed}"

    def text(self, origin: str) -> str:
        """`file:line:key: sentence`, and the fix on a line of its own."""
        where = ":".join(part for part in (self.file or origin, str(self.line or ""), self.key) if part)
        return f"{where}: {self.sentence}\n  fix: {self.fix}"


class SiteError(Exception):
    """Everything that is wrong with a site: file, line, key, what, got, allowed, fix of each mistake.

    `problems` holds the same as data.
    """

    def __init__(self, message: str, *, origin: str = "", problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.origin = origin
        self.problems = tuple(problems)


def file_error(origin: str, problems: Iterable[Problem]) -> SiteError:
    """`site_error` for a file that is no site's own."""
    return site_error(origin, problems, of="file")


def site_error(origin: str, problems: Iterable[Problem], *, of: str = "site") -> SiteError:
    """One error for all problems, in the order of their lines."""
    ordered = [problem.redacted() for problem in sorted(dict.fromkeys(problems), key=lambda problem: problem.line or 0)]
    count = "1 error" if len(ordered) == 1 else f"{len(ordered)} errors"
    lines = [f"{origin}: {count} in the {of}"]
    for problem in ordered:
        lines += [f"  {line}" for line in problem.text(origin).splitlines()]
    return SiteError("\n".join(lines), origin=origin, problems=ordered)


class ProblemError(Exception):
    """A failure that its reader can fix, as one problem; its text is `what; got; allowed`, and the fix on a line."""

    def __init__(
        self, what: str, *, fix: str, got: str = "", allowed: str = "", near: str = "", line: int | None = None
    ) -> None:
        self.problem = Problem(path=(), what=what, got=got, allowed=allowed, near=near, fix=fix, line=line)
        super().__init__(f"{self.problem.sentence}\n  fix: {fix}")


class WrongValueError(ProblemError, ValueError):
    """A value that the check of its section refuses; its reader makes it the problem of its key."""


def refused_value(path: Path, detail: Mapping[str, Any]) -> Problem:
    """The problem of a value that a check refused, out of pydantic's details of it."""
    error = detail.get("ctx", {}).get("error")
    if isinstance(error, WrongValueError):
        return replace(error.problem, path=path)
    return Problem(path=path, what=str(error or detail["msg"]), fix="change one of them")


def meant(near: str) -> str:
    """What an error adds for a word that is near to the given one; nothing where there is none."""
    return f"; did you mean '{near}'?" if near else ""


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of `words` that `word` was probably meant to be, or nothing."""
    by_plain = {_plain(candidate): candidate for candidate in words}
    # At difflib's own cutoff of 0.6, `replicas` is near `plans`.
    longer = [plain for plain in by_plain if len(word) > 2 and plain.startswith(_plain(word))]
    close = longer if len(longer) == 1 else difflib.get_close_matches(_plain(word), by_plain, n=1, cutoff=0.62)
    return by_plain[close[0]] if close else ""


def shown(value: Any) -> str:
    """A value as an error names it: short, on one line, and never a secret."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    if is_secret_name(value):
        return HIDDEN
    first, _, rest = value.partition("\n")
    cut = len(first) > _LONGEST_SHOWN or rest
    return f"'{first[:_LONGEST_SHOWN]}...'" if cut else f"'{first}'"


def _plain(word: str) -> str:
    """Without the differences that people do not mean: case, and dash against underscore."""
    return word.casefold().replace("-", "_")
