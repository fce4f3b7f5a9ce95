"""Reads a site from its file, without the engine; `stacks.program.engine_config` does from the engine's configuration.

Three layers, each over the one before: defaults of the code, catalogue and versions, the site's own file. Whether the
site can work is not asked here: `stacks.plan.site_plan` does, and reports the problems of both at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floor import problems
from floor.counts import counted
from floor.problems import Problem, SiteError
from floor.reading.document import YamlDocument, read_file
from floor.reading.files import text_of
from floor.secret_texts import HIDDEN, PlainSecret, masked
from stacks.site.checks import crosschecks, database, neighbours
from stacks.site.model import SiteConfig
from stacks.site.reading import validation
from stacks.site.reading.meant import as_meant

PROJECT = "inference-platform"
KEY = f"{PROJECT}:site"
# Next to a value that `init` could only guess.
UNFINISHED = "FILL IN"


@dataclass(frozen=True, kw_only=True)
class ReadSite:
    """What a stack file sets: typed as far as it is right, with everything that is wrong with it by itself."""

    file: str
    document: YamlDocument
    """The site's section, with the line of each key."""
    values: Mapping[str, Any]
    """The same as plain values; secrets are hidden."""
    site: SiteConfig | None
    """Its valid parts; None where they make no site."""
    problems: tuple[Problem, ...] = ()
    remarks: tuple[Problem, ...] = ()
    """What the file's text shows that its values do not, such as marks of `init` that are left."""

    def warnings(self, later: Sequence[Problem] = ()) -> tuple[Problem, ...]:
        """What works, and is not wise, of a site without problems, and `later` ones; each with its line."""
        warned = [*self.remarks, *crosschecks.warnings(self.values), *later]
        return tuple(problem.at(self.document.line(problem.path)) for problem in warned)

    def error(self, later: Sequence[Problem] = ()) -> SiteError:
        """One error of all its problems and of `later` ones, each with its line."""
        reported = [*self.problems, *later]
        return problems.site_error(self.file, [problem.at(self.document.line(problem.path)) for problem in reported])


def read_site_file(path: Path) -> ReadSite:
    """The site of one stack file. Raises SiteError for a file that holds none."""
    file = str(path)
    try:
        document = read_file(path)
    except FileNotFoundError:
        raise _refused(file, "no such file", "name a stack file, Pulumi.<site>.yaml") from None
    config = document.values.get("config") if isinstance(document.values, dict) else None
    is_there = isinstance(config, dict) and KEY in config
    unreadable = [
        problem for problem in document.problems if not problem.path or (problem.of_whole_file and not is_there)
    ]
    if unreadable:
        raise problems.site_error(file, unreadable)
    return read_site(_site_section(document, file), file, beside=path, remarks=_remarks(path))


def read_values(values: Mapping[str, Any], file: str, *, beside: Path | None = None) -> ReadSite:
    """The site that `values` describe, without the text of a file."""
    return read_site(YamlDocument(values=values), file, beside=beside)


def read_site(
    document: YamlDocument, file: str, *, beside: Path | None = None, remarks: Sequence[Problem] = ()
) -> ReadSite:
    """A site out of its section. Raises SiteError for one that is no section.

    file: named in errors. beside: the path of the file, to compare the site with those in its folder.
    """

    def where(path: problems.Path) -> str:
        line = document.line(path)
        return f" ({file}:{line})" if line else ""

    values = validation.plain(document.values)
    if not isinstance(values, dict):
        raise problems.site_error(
            file,
            [
                Problem(
                    path=(),
                    what=f"config.{KEY} " + ("has no keys" if values is None else "is not a section of keys"),
                    got="" if values is None else problems.shown(values),
                    fix="write keys below it, indented by two more spaces: python -m sitectl docs configuration",
                    line=document.lines.get(()),
                )
            ],
        )
    secrets: list[PlainSecret] = []
    values = masked(values, secrets)
    meant = as_meant(database.provided(values))
    values, checked = meant.values, meant.checked
    first = [*document.problems, *(_problem_of(secret, document) for secret in secrets)]
    between = crosschecks.problems(values, where, malformed=bool(checked.problems or meant.misspelt))
    of_keys = [*meant.misspelt, *map(meant.at_written, [*checked.problems, *between])]
    reported = [*first, *_others(of_keys, first)]
    if beside:
        reported += neighbours.problems(beside, values, KEY)
    return ReadSite(
        file=file,
        document=document,
        values=values,
        site=checked.site,
        problems=tuple(reported),
        remarks=tuple(remarks),
    )


def _remarks(path: Path) -> list[Problem]:
    """What the text shows that its values do not: marks of `init` that are left, and a file that was cut short."""
    text = text_of(path)
    lines = text.splitlines()
    marked = [number for number, line in enumerate(lines, start=1) if UNFINISHED in line.partition("#")[2]]
    remarks = []
    if marked:
        what = f"{counted(len(marked), 'value')} still marked {UNFINISHED}: {_line_numbers(marked)}"
        fix = f"write the site's own value, and remove the mark; where the guess is right, remove {UNFINISHED} alone"
        remarks.append(Problem(path=(), what=what, fix=fix, line=marked[0]))
    # A text file ends its last line; one that was cut in the middle of a line does not.
    if not text.endswith("\n"):
        what = "the last line has no end, as in a file that was cut short"
        fix = "see that the end is there, and end it by a new line"
        remarks.append(Problem(path=(), what=what, fix=fix, line=len(lines)))
    return remarks


def _line_numbers(numbers: Sequence[int]) -> str:
    return f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _problem_of(secret: PlainSecret, document: YamlDocument) -> Problem:
    line = document.line(secret.written)
    return Problem(path=secret.path, what=secret.what, fix=secret.fix, got=secret.got, line=line)


def _others(all_problems: list[Problem], first: list[Problem]) -> list[Problem]:
    """Problems of other keys than `first` has: that an octal number is out of range too helps no one."""
    reported = {problem.path for problem in first if problem.path}
    return [
        problem
        for problem in all_problems
        # A hidden secret names nothing that exists either; one report is enough.
        if problem.path not in reported and problem.path[:-1] not in reported and HIDDEN not in problem.what
    ]


def _site_section(document: YamlDocument, file: str) -> YamlDocument:
    config = document.values.get("config") if isinstance(document.values, dict) else None
    if not isinstance(config, dict) or KEY not in config:
        if isinstance(document.values, dict) and KEY in document.values:
            line = document.lines[(KEY,)]
            raise _refused(file, f"{KEY} is beside config", "put it below `config:`, indented by two spaces", line)
        raise no_site(file, config, document.lines)
    return document.section("config", KEY)


def no_site(file: str, config: Any, lines: Mapping[problems.Path, int]) -> SiteError:
    """The error of a file whose `config` holds no site."""
    keys = [str(key) for key in config] if isinstance(config, dict) else []
    near = next((key for key in keys if key.rpartition(":")[2] == "site"), problems.nearest(KEY, keys))
    return problems.site_error(
        file,
        [
            Problem(
                path=(),
                what=f"config.{KEY} is missing" + (f"; there is config.{near}" if near else ""),
                fix=f"rename it to {KEY}" if near else "write the site below it: python -m sitectl docs add-a-site",
                line=lines.get(("config", near)) if near else None,
            )
        ],
    )


def _refused(file: str, what: str, fix: str, line: int | None = None) -> SiteError:
    return problems.site_error(file, [Problem(path=(), what=what, fix=fix, line=line)])
