"""`lab logs`: a pod's or a lab component's output, from the files that the pod runner and the supervisor write."""

from __future__ import annotations

import difflib
import sys
import time
from pathlib import Path

import click

from lab.errors import LabError
from lab.paths import Lab
from lab.site import guard

_POLL_S = 0.3


@click.command()
@click.argument("source", required=False, metavar="[NAMESPACE/POD[/CONTAINER] | COMPONENT]")
@click.option("-f", "--follow", is_flag=True, help="go on with what is written from now on")
@click.option("-p", "--previous", is_flag=True, help="the run before the container's last restart")
@click.option("--tail", type=int, metavar="LINES", help="only the last lines")
@click.pass_obj
def command(lab: Lab, *, source: str | None, follow: bool, previous: bool, tail: int | None) -> int:
    """Print the log of a pod's container or of a lab component.

    A pod is named by its name or the beginning of it, a component as in `lab status`; without a name, the command lists
    what there is.
    \f
    Raises `LabError` when nothing, or more than one thing, has that name.
    """
    if source is None:
        there = [*_components(lab), *sorted(_containers(lab))]
        if not there:
            raise LabError(f"lab {lab.index} of {lab.home} has no logs", fix="bring it up: python -m lab up")
        print("\n".join(there))
        return 0
    path = find(lab, source, previous=previous)
    _print(path, tail, follow=follow)
    return 0


def find(lab: Lab, source: str, *, previous: bool = False) -> Path:
    """The log file of a source: the newest pod of that name, the newest run of its container."""
    components = _components(lab)
    if source in components:
        return components[source]
    containers = _containers(lab)
    exact = {name for name in containers if name == source or name.rpartition("/")[0] == source}
    matches = exact or {name for name in containers if name.startswith(source)}
    if not matches:
        close = difflib.get_close_matches(source, [*components, *containers], n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}? " if close else ""
        raise LabError(f"no log of {source!r}", fix=f"{hint}`python -m lab logs` lists what has one")
    if len(matches) > 1:
        raise LabError(f"{source!r} is more than one container", fix=f"name one of {', '.join(sorted(matches))}")
    runs = _runs(containers[matches.pop()])
    if previous and len(runs) < 2:
        raise LabError(f"{source!r} has not been restarted, so there is no previous log", fix="leave --previous out")
    return runs[-2 if previous else -1]


def _components(lab: Lab) -> dict[str, Path]:
    recorded = guard.read_status(lab).get("components", {})
    own = {path.stem: path for path in lab.logs.glob("*.log")}
    return {**own, **{name: Path(entry["log"]) for name, entry in recorded.items() if Path(entry["log"]).exists()}}


def _containers(lab: Lab) -> dict[str, Path]:
    """`namespace/pod/container` -> folder with one file per run; of two pods of one name the later one counts."""
    folders = [folder for folder in lab.logs.glob("pods/*_*_*/*") if folder.is_dir() and _runs(folder)]
    folders.sort(key=lambda folder: _runs(folder)[-1].stat().st_mtime)
    named = {}
    for folder in folders:
        namespace, pod, _ = folder.parent.name.split("_", 2)
        named[f"{namespace}/{pod}/{folder.name}"] = folder
    return named


def _runs(folder: Path) -> list[Path]:
    numbered = [path for path in folder.glob("*.log") if path.stem.isdecimal()]
    return sorted(numbered, key=lambda path: int(path.stem))


def _print(path: Path, tail: int | None, *, follow: bool) -> None:
    with path.open("rb") as file:
        content = file.read()
        lines = content.splitlines(keepends=True)
        sys.stdout.buffer.write(b"".join(lines[-tail:] if tail else lines))
        sys.stdout.flush()
        while follow:
            new = file.read()
            if new:
                sys.stdout.buffer.write(new)
                sys.stdout.flush()
            else:
                time.sleep(_POLL_S)
                if path.exists() and path.stat().st_size < file.tell():
                    file.seek(0)
