"""The checkout that a command works on: its sites, its rules files, its program run without an engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from floor.counts import counted
from floor.problems import meant, nearest, site_error
from floor.reading.document import read_file
from policy.model import HIDDEN, Resource
from sitectl.offline import over_cores
from sitectl.shell import home, temporary
from sitectl.shell.errors import Exit, SitectlError, no_resources
from sitectl.shell.progress import Progress
from sitectl.shell.project_folder import PROJECT_FILE

# By the folder's name, as PYTHONPATH has none with a colon; to the program, this package is all that is here.
_RUN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from sitectl.offline.mocked_program import main; "
    "del sys.path[0]; sys.exit(main(sys.argv[1:]))"
)
# -P: the checkout has rooms of the same names, which may be older.
_PROGRAM = ("-P", "-c", _RUN, str(Path(__file__).parents[2]))
# As the mocked program writes it, which is not imported: it needs the SDK.
LATER = "[known after up]"
_PREFIX, _SUFFIX = "Pulumi.", ".yaml"
Subject = TypeVar("Subject")


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a site's program declares, or why it does not."""

    resources: list[Resource]
    error: str = ""
    trace: str = ""
    """Where the program failed, for its author; empty for mistakes of a site."""
    machines: dict[str, Any] | None = field(default_factory=dict)
    """Keys and config of each machine, masked; None where the program is of a revision that does not show them."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a command reports about one site."""

    lines: list[str]
    """For people."""
    record: dict[str, Any]
    """For --json."""
    good: bool = True


@dataclass(frozen=True, kw_only=True)
class ToldOfAll:
    """The same of all sites that a command looked at."""

    lines: list[str] = field(default_factory=list)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By site."""
    wrong: list[str] = field(default_factory=list)
    """Sites that are not good."""

    @property
    def status(self) -> int:
        """Exit status of the command."""
        return int(Exit.REFUSED if self.wrong else Exit.OK)


def relative(text: str, project: Path) -> str:
    """A message with files of the checkout as the user names them."""
    return text.replace(f"{project}/", "")


def site_of(file: Path) -> str:
    """The site that a stack file is for, by its name."""
    return file.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def site_files(project: Path, names: Sequence[str] = ()) -> dict[str, Path]:
    """Stack files by site, sorted; all of them unless `names` are given. Raises SitectlError for an unknown name."""
    there = {site_of(path): path for path in sorted(project.glob(f"{_PREFIX}*{_SUFFIX}")) if path.name != PROJECT_FILE}
    unknown = [name for name in names if name not in there]
    if unknown:
        near = nearest(unknown[0], there)
        raise SitectlError(
            f"no such site in {project}" + meant(near),
            got=", ".join(unknown),
            allowed=", ".join(there) or "none: there is no Pulumi.<site>.yaml",
            fix="name one of these, or make one: python -m sitectl init NAME",
            status=Exit.USAGE,
        )
    return {name: there[name] for name in (names or there)}


def chosen_sites(project: Path, names: Sequence[str]) -> dict[str, Path]:
    """`site_files` for a command that needs a site. Raises SitectlError where there is none yet."""
    files = site_files(project, names)
    if not files:
        raise SitectlError("there is no site yet", fix="python -m sitectl init NAME", status=Exit.REFUSED)
    return files


def tell(sites: Mapping[str, Subject], look: Callable[[str, Subject], Told]) -> ToldOfAll:
    """What `look` reports about each site; about many, by several processes (`over_cores`)."""
    all_sites = ToldOfAll()
    for name, reported in over_cores.for_each(sites, look).items():
        all_sites.lines.extend(reported.lines)
        all_sites.records[name] = reported.record
        all_sites.wrong.extend([] if reported.good else [name])
    return all_sites


def tell_declared(
    project: Path, files: Mapping[str, Path], progress: Progress, look: Callable[[str, Declared], Told], without: str
) -> ToldOfAll:
    """The result of `look` for what each site declares; `without` is the result for a site that was not rendered."""

    def rendered(name: str, site: Declared) -> Told:
        if site.error:
            return Told(
                lines=[f"{name}: not rendered{without}\n{site.error}"], record={"error": site.error}, good=False
            )
        return look(name, site)

    with progress.layer(f"render {counted(len(files), 'site')}"):
        declared = declare(project, files, progress)
    return tell(declared, rendered)


def declare(project: Path, files: Mapping[str, Path], progress: Progress | None = None) -> dict[str, Declared]:
    """What the program of `project` declares for each site, run under mocks in processes of its own.

    Raises SitectlError when the process itself ends early; a site that the program refuses has an `error`.
    """
    results: dict[str, Any] = {}
    with temporary.folder() as folder:
        stacks: dict[str, int] = {}
        for number, (name, path) in enumerate(files.items()):
            try:
                document = read_file(path)
            except FileNotFoundError:
                results[name] = {"error": f"{path.name}: no such file: a link that leads nowhere"}
                continue
            if problems := [problem for problem in document.problems if problem.of_whole_file or not problem.path]:
                results[name] = {"error": str(site_error(path.name, problems))}
                continue
            copy = folder / f"{number}.json"
            # What a site declares grows with its file.
            stacks[f"{name}={copy}"] = copy.write_text(json.dumps(document.values))
        results |= _run_program(project, folder, over_cores.shares(stacks))
    results = {name: results[name] for name in files}
    if progress:
        for name, result in results.items():
            progress.took(f"render {name}", result.get("seconds", 0.0))
    return {name: _declared(result) for name, result in results.items()}


def _run_program(project: Path, folder: Path, parts: Sequence[Sequence[str]]) -> dict[str, Any]:
    """What the program declares for all stacks, by a process for each part of them; `folder` is for their files."""
    outs = [folder / f"declared-{number}.json" for number in range(len(parts))]
    results: dict[str, Any] = {}
    with ExitStack() as running:
        processes = []
        for out, stacks in zip(outs, parts, strict=True):
            # To a file: a full pipe, which is not read meanwhile, would stop the process.
            errors = running.enter_context(out.with_suffix(".errors").open("wb"))
            process = subprocess.Popen(
                [sys.executable, *_PROGRAM, str(out), *stacks],
                cwd=project,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
            processes.append(running.enter_context(process))
        for out, process in zip(outs, processes, strict=True):
            process.wait()
            results |= _declared_by(project, out, process.returncode)
    return results


def _declared_by(project: Path, out: Path, status: int) -> dict[str, Any]:
    last_lines = out.with_suffix(".errors").read_text(errors="replace").strip().splitlines()[-5:]
    # As the mocked program ends where its output cannot be written, and where it gets no memory or thread.
    if status == os.EX_IOERR:
        raise temporary.full(last_lines[-1])
    if status == os.EX_OSERR:
        raise no_resources(last_lines[-1])
    if status != 0 or not out.exists():
        last = "\n  ".join(last_lines)
        raise SitectlError(
            f"the program could not be run in {project}:\n  {last}", fix=f"{home.repair()}, then try again"
        )
    results: dict[str, Any] = json.loads(out.read_text())
    return results


def as_rules_see(resources: Sequence[Resource]) -> list[Resource]:
    """The resources as the program's own rules see them: what only `up` can know is hidden too."""
    return [replace(resource, body=_without_later(resource.body)) for resource in resources]


def _without_later(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_later(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_later(inner) for inner in value]
    return HIDDEN if value == LATER else value


def _declared(result: Mapping[str, Any]) -> Declared:
    resources = [
        Resource(
            type=resource["type"],
            name=resource["name"],
            body=resource["inputs"],
            protected=resource["protect"],
            retained=resource["retain"],
        )
        for resource in result.get("resources", [])
    ]
    return Declared(
        resources=resources,
        error=result.get("error", ""),
        trace=result.get("trace", ""),
        machines=result.get("machines"),
    )
