"""The emulated hub's log: a line for each file that it sends, so that a test of a running lab can count them."""

from __future__ import annotations

import io

import httpx
import pytest

from lab.hub import made_up
from lab.hub.__main__ import say
from lab.hub.server import EmulatedHubServer, Hub

pytestmark = pytest.mark.row("000.20")

REPOSITORY, COMMIT = "made-up/model", "a" * 40


def test_each_file_that_is_sent_is_a_line_with_its_commit() -> None:
    lines: list[str] = []
    server = EmulatedHubServer(Hub(log=lines.append))
    files = sorted(made_up.files(REPOSITORY, COMMIT))
    try:
        for path in files:
            address = f"{server.url}/{REPOSITORY}/resolve/{COMMIT}/{path}"
            assert httpx.get(address, follow_redirects=True, trust_env=False).is_success
    finally:
        server.close()
    assert lines == [f"sends {COMMIT}/{path}" for path in files]


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads' lines were one, where the end of a line was written by itself."""
    pieces: list[str] = []

    class Pieces(io.StringIO):
        def write(self, text: str) -> int:
            pieces.append(text)
            return len(text)

    monkeypatch.setattr("sys.stdout", Pieces())
    say("sends a/b")
    assert pieces == ["sends a/b\n"]
