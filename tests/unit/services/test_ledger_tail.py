"""The reader of a log: what a shipper that is killed, a rotation and another Envoy leave of it."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.ledger.ship import age_s
from services.ledger.tail import Piece, Tail

pytestmark = pytest.mark.row("000.35")

PLENTY = 10**9
FILE_OPERATIONS = ("rename", "replace", "unlink", "write_text", "stat")


class KilledError(BaseException):
    """No code of the shipper runs any more."""


class World:
    """An Envoy, its log, and shippers of which each is killed at some operation on a file."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path = folder / "requests.jsonl"
        self.written: list[bytes] = []
        self.delivered = Counter[bytes]()
        self.choose = random.Random(seed)  # noqa: S311 - a repeatable choice
        self.file = self.path.open("ab", buffering=0)
        self.half = b""

    def envoy(self) -> None:
        """Writes lines, the last of them maybe in two parts."""
        for _ in range(self.choose.randint(0, 4)):
            text = b"line %d " % len(self.written) + b"x" * self.choose.randint(0, 40)
            self.written.append(text)
            cut = self.choose.randint(0, len(text))
            self.file.write(self.half + text[:cut])
            self.half = text[cut:] + b"\n"
            if self.choose.random() < 0.7:
                self.finish_line()

    def finish_line(self) -> None:
        self.file.write(self.half)
        self.half = b""

    def reopen(self) -> None:
        self.finish_line()
        self.file.close()
        self.file = self.path.open("ab", buffering=0)

    def step(self, tail: Tail, *, ends: bool = False) -> Piece | None:
        """What `run` of the shipper does."""
        if tail.rotate(120, PLENTY) and self.choose.random() < 0.6:
            self.reopen()
        piece = tail.next(most_bytes=100, most_lines=3, ends=ends)
        if piece is not None:
            self.delivered.update(line for line in piece.data.split(b"\n") if line)
            # The ledger has them; whether the shipper hears of it is another matter.
            if not piece.is_last:
                tail.confirmed(piece)
        return piece


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    left = [-1]

    def counted(original: Any) -> Any:
        def operation(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KilledError
            return original(*arguments, **options)

        return operation

    for name in FILE_OPERATIONS:
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))

    def arm(operations: int) -> None:
        left[0] = operations

    yield arm
    left[0] = -1


@pytest.mark.parametrize("seed", range(12))
def test_a_kill_at_any_operation_loses_no_line(tmp_path: Path, kill_at: Callable[[int], None], seed: int) -> None:
    world, kills = World(tmp_path, seed), 0
    tail = Tail(world.path)
    for _ in range(150):
        world.envoy()
        kill_at(world.choose.randint(1, 25))
        try:
            world.step(tail)
        except KilledError:
            tail, kills = Tail(world.path), kills + 1
    kill_at(-1)
    world.finish_line()
    while tail.rotate(120, PLENTY):
        world.reopen()
    while (piece := world.step(tail, ends=True)) is not None and not piece.is_last:
        pass
    assert kills > 20
    assert set(world.delivered) == set(world.written)
    # What has been confirmed goes: of 150 rounds, the last files are there.
    assert len(list(tmp_path.glob("requests.jsonl*"))) <= 3


def test_nothing_is_given_twice_without_a_kill(tmp_path: Path) -> None:
    world = World(tmp_path, 1)
    tail = Tail(world.path)
    for _ in range(300):
        world.envoy()
        world.step(tail)
    world.finish_line()
    while tail.rotate(120, PLENTY):
        world.reopen()
    while world.step(tail) is not None:
        pass
    assert world.delivered == Counter(world.written)
    assert tail.bytes_behind() == 0


def lines(tail: Tail, *, ends: bool = False) -> list[bytes]:
    got: list[bytes] = []
    while (piece := tail.next(most_bytes=1000, most_lines=100, ends=ends)) is not None:
        got += piece.data.split()
        if piece.is_last:
            break
        tail.confirmed(piece)
    return got


def test_a_file_with_the_number_of_an_earlier_one_is_read_from_its_beginning(tmp_path: Path) -> None:
    """A file system gives the number of a deleted file to a new one."""
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"first\nsecond\n")
    assert lines(Tail(path)) == [b"first", b"second"]
    path.unlink()
    path.write_bytes(b"third\nfourth\nfifth\n")
    checkpoint = path.with_name("requests.jsonl.checkpoint")
    checkpoint.write_text(json.dumps(json.loads(checkpoint.read_text()) | {"inode": path.stat().st_ino}))
    assert lines(Tail(path)) == [b"third", b"fourth", b"fifth"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"inode": 1}', "null"])
def test_a_checkpoint_that_is_none_means_the_beginning(tmp_path: Path, content: str) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"first\n")
    path.with_name("requests.jsonl.checkpoint").write_text(content)
    assert lines(Tail(path)) == [b"first"]


def test_a_log_that_is_recreated_or_cut_short_is_read_to_its_end_and_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"first\n")
    tail = Tail(path)
    assert lines(tail) == [b"first"]
    with path.open("ab") as log:
        log.write(b"second\n")
    path.unlink()
    path.write_bytes(b"third\n")
    assert lines(tail) == [b"second", b"third"]
    path.write_bytes(b"4\n")
    assert lines(tail) == [b"4"]


def test_a_line_without_an_end_waits_and_is_given_at_the_end_without_being_done(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"first\nsec")
    tail = Tail(path)
    assert lines(tail) == [b"first"]
    assert lines(tail, ends=True) == [b"sec"]
    with path.open("ab") as log:
        log.write(b"ond\n")
    assert lines(Tail(path)) == [b"second"]


def test_a_done_file_is_given_to_its_last_byte_and_deleted(tmp_path: Path) -> None:
    """An Envoy died before the end of its line, and the next one began another file."""
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"first\nsec")
    tail = Tail(path)
    assert tail.rotate(1, PLENTY)
    assert lines(tail) == [b"first"]
    path.write_bytes(b"third\n")
    assert lines(tail) == [b"sec", b"third"]
    assert [file.name for file in tmp_path.glob("*.1")] == []


def test_a_line_that_fills_a_piece_holds_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"x" * 2500 + b"\nlater\n")
    assert lines(Tail(path))[-1] == b"later"


@pytest.mark.parametrize(
    ("text", "age"),
    [
        (b'{"started": "%d.5", "duration_ms": 40000}\n', 560),
        # An Envoy died in it, and the next one went on behind it, or another file has its end.
        (b'{"id": "a", "sta{"started": "1.5"}\n{"started": "%d.5"}\n', 600),
        (b'rted": "1.5"}\n[]\n{}\n{"started": "%d.5", "duration_ms": null}\n{"started": "1.5"}\n', 600),
        (b'rted": "1.5"}\n', 300),
    ],
)
def test_what_waits_is_as_old_as_its_first_line_that_is_whole(tmp_path: Path, text: bytes, age: float) -> None:
    """Of a file without any, as old as the file."""
    now = int(time.time())
    path = tmp_path / "requests.jsonl"
    path.write_bytes(text % (now - 600) if b"%" in text else text)
    os.utime(path, (now - 300, now - 300))
    piece = Tail(path).next(most_bytes=1000, most_lines=100)
    assert piece is not None
    assert age_s(piece) == pytest.approx(age, abs=20)


def test_without_room_for_a_checkpoint_lines_are_shipped(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"first\n")
    path.with_name("requests.jsonl.draft").mkdir()
    tail = Tail(path)
    assert lines(tail) == [b"first"]
    assert lines(tail) == []


def test_a_log_stops_while_too_much_waits_and_goes_on_once_there_is_room(tmp_path: Path) -> None:
    """It is to be opened again until its writer has; what waits is kept, and what is written then refused."""
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"first\nsecond\n")
    tail = Tail(path)
    assert tail.rotate(10_000, 10)
    with pytest.raises(OSError, match="No space left"), path.open("ab", buffering=0) as log:
        log.write(b"lost\n")
    earlier = path.with_name("requests.jsonl.1")
    with earlier.open("ab") as log:
        log.write(b"third\n")
    # What it had is at its end now, and not looked for again; nor after a restart, but for once.
    assert [Tail(path).rotate(1, 10), tail.rotate(1, 10), tail.rotate(1, 10)] == [True, True, False]
    assert tail.bytes_behind() == 19
    assert lines(tail) == [b"first", b"second", b"third"]
    # Its only file is larger than the limit, and all of it is confirmed.
    assert tail.rotate(1, 10)
    path.write_bytes(b"fourth\n")
    assert not tail.rotate(10_000, 10)
    assert lines(tail) == [b"fourth"]
    assert not earlier.exists()
