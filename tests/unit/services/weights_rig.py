"""A volume in a folder, an emulated hub in this process, and the program between them, on a virtual clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.hub import made_up
from lab.hub.server import EmulatedHubServer, HubFaults
from lab.hub.server import Hub as EmulatedHub
from services.weights.bringing import Bringing
from services.weights.completion import read_marker
from services.weights.failure import WeightsError
from services.weights.hub import Hub
from services.weights.manifest import Manifest
from services.weights.order import Source, Wanted, WeightsOrder
from services.weights.pace import Clock
from services.weights.volume import Volume, free_bytes

REPOSITORY = "made-up/model"
REVISION, OTHER, THIRD = "a" * 40, "b" * 40, "c" * 40
FILES = made_up.files(REPOSITORY, REVISION)
LARGE = "model-00002-of-00004.safetensors"
# A server that sends nothing is given up soon where a test has one; others may be as slow as a busy machine.
STALL_S = 0.5
PATIENCE_S = 60.0


class VirtualClock(Clock):
    """Goes on only when someone sleeps."""

    def __init__(self, on_sleep: Callable[[float], None] = lambda _: None) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self._on_sleep = on_sleep
        self._lock = threading.Lock()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        with self._lock:
            self.slept.append(seconds)
            self.time += seconds
        self._on_sleep(seconds)


@dataclass
class Rig:
    root: Path
    emulated: EmulatedHub
    url: str
    clock: VirtualClock = field(default_factory=VirtualClock)
    lines: list[str] = field(default_factory=list)

    @property
    def stall_s(self) -> float:
        stalls = any(fault.stall_at is not None for fault in self.emulated.faults)
        return STALL_S if stalls else PATIENCE_S

    @property
    def folder(self) -> Path:
        return self.root / "revisions" / REVISION

    @property
    def part(self) -> Path:
        """The unfinished large file."""
        return self.root / "parts" / REVISION / f"{LARGE}.part"

    def order(
        self,
        *revisions: str,
        lock: str = "",
        source: Source = "mirror",
        keep: int = 1,
        parallel: int = 1,
        bytes_per_s: float = 1e12,
        token_from: str = "",
    ) -> WeightsOrder:
        return WeightsOrder(
            model="chat",
            source=source,
            endpoint=self.url,
            bytes_per_s=bytes_per_s,
            parallel=parallel,
            keep=keep,
            token_from=token_from,
            wanted=tuple(Wanted(REPOSITORY, revision, lock) for revision in revisions or (REVISION,)),
        )

    def program(
        self, order: WeightsOrder | None = None, *, token: str = "", free: Callable[[Path], int] = free_bytes
    ) -> Bringing:
        order = order or self.order()
        hub = Hub(self.url, token=token, token_from=order.token_from, stall_s=self.stall_s)
        return Bringing(
            order,
            Volume(self.root, free=free),
            None if order.source == "volume" else hub,
            self.lines.append,
            self.clock,
        )

    def lock(self, revision: str = REVISION) -> Manifest:
        """What the server's files are, all with a sha256."""
        apart = Rig(self.root.with_name("apart"), self.emulated, self.url)
        apart.program(self.order(revision)).run()
        marker = read_marker(apart.root / "revisions" / revision)
        assert marker
        return marker.manifest

    def asked(self, path: str = LARGE) -> list[str]:
        """The Range of each request for a file."""
        return [range_ for name, range_ in self.emulated.requests if name == path]

    def is_whole(self, revision: str = REVISION) -> bool:
        there = self.root / "revisions" / revision
        made = made_up.files(REPOSITORY, revision)
        return (there / ".weights.json").exists() and all(
            (there / path).read_bytes() == data for path, data in made.items()
        )


@contextmanager
def rig(root: Path, *faults: HubFaults, token: str = "") -> Iterator[Rig]:
    emulated = EmulatedHub(faults=faults, token=token)
    server = EmulatedHubServer(emulated)
    try:
        yield Rig(root / "volume", emulated, server.url)
    finally:
        server.close()


def refused(program: Bringing) -> WeightsError:
    try:
        program.run()
    except WeightsError as error:
        return error
    raise AssertionError("it did not fail")


def write_order(folder: Path, order: WeightsOrder) -> Sequence[str]:
    """The order as files in a folder; the options that name it."""
    folder.mkdir(exist_ok=True)
    for name, text in order.files().items():
        (folder / name).write_text(text)
    return "--order", str(folder), "--digest", order.digest
