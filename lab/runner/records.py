"""What the runner records of a running pod, so that its successor can take it over: in files of the pod's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# The exit code of a run whose end was not seen.
LOST_EXIT_CODE = 137


@dataclass(frozen=True, kw_only=True)
class PodRecord:
    """Where a pod runs. Another boot of its node means that it does not any more."""

    boot: str
    address: str
    network: str
    """Name of its network namespace; empty for a pod in its node's network."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run of a container. `pid` and `birth` are of the process that watches it from outside."""

    number: int
    pid: int
    birth: int
    started_at: str
    log: str
    uid: int
    gid: int
    groups: tuple[int, ...]


class Records:
    """The records of one pod, below its folder."""

    def __init__(self, pod_folder: Path) -> None:
        self._folder = pod_folder / "runs"

    def status_file(self, container: str) -> Path:
        """Where bubblewrap writes the program's process id, and its exit code when it ends."""
        return self._folder / f"{container}.status"

    def output(self, container: str) -> Path:
        """The pipe that the container writes to."""
        return self._folder / f"{container}.output"

    def make_folder(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def write_pod(self, record: PodRecord) -> None:
        self.make_folder()
        _write(self._folder / "pod.json", asdict(record))

    def pod(self) -> PodRecord | None:
        """None for a pod that has not come as far as its network."""
        with suppress(OSError, ValueError, TypeError):
            return PodRecord(**json.loads((self._folder / "pod.json").read_text()))
        return None

    def write_run(self, container: str, record: RunRecord) -> None:
        _write(self._folder / f"{container}.run.json", asdict(record))

    def runs(self) -> Iterator[tuple[str, RunRecord]]:
        """The last run of each container."""
        for path in sorted(self._folder.glob("*.run.json")):
            with suppress(OSError, ValueError, TypeError):
                yield path.name.removesuffix(".run.json"), RunRecord(**json.loads(path.read_text()))


def recorded(status_file: Path, key: str) -> int | None:
    """`child-pid` or `exit-code` out of bubblewrap's status file; None until it is written."""
    with suppress(OSError):
        for line in status_file.read_text().splitlines():
            with suppress(ValueError):
                entry: dict[str, Any] = json.loads(line)
                if key in entry:
                    return int(entry[key])
    return None


def _write(path: Path, content: dict[str, Any]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content))
    draft.replace(path)
