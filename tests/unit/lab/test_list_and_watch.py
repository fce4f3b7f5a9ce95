"""One loop of list and watch, in a thread and on an event loop, against a scripted API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import Any

import pytest

from lab.watching import Collection, Object, RefusedError, follow, follow_async

TOO_OLD = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}


class CutError(Exception):
    """The connection broke."""


class OverError(Exception):
    """The script has ended; no loop survives it."""


def item(name: str, version: int, uid: str = "") -> Object:
    return {"metadata": {"namespace": "n", "name": name, "uid": uid or f"u{name}", "resourceVersion": str(version)}}


def event(kind: str, obj: Object) -> Object:
    return {"type": kind, "object": obj}


def listed(version: int, *items: Object) -> Object:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(version)}, "items": list(items)}


class Server:
    """Answers each request by the next entry of the script and keeps what was asked, pauses included.

    A list is answered by a mapping, a watch by what it sends: events, bytes, and an exception at which it breaks.
    """

    lost = (CutError,)

    def __init__(self, *script: Any) -> None:
        self.script, self.asked, self.reasons = [*script], [], []  # type: ignore[var-annotated]

    def _next(self, asked: str) -> Any:
        if not self.script:
            raise OverError
        self.asked.append(asked)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, dict) == (asked == "list"), f"{asked} meets {answer}"
        return answer

    def list(self) -> Object:
        answer: Object = self._next("list")
        return answer

    def watch(self, version: str) -> Generator[bytes]:
        for sent in self._next(f"watch {version}"):
            if isinstance(sent, Exception):
                raise sent
            yield sent if isinstance(sent, bytes) else json.dumps(sent).encode() + b"\n"

    def pause(self, seconds: float, reason: str) -> bool | None:
        if seconds:
            self.asked.append(f"pause {seconds:g}")
        self.reasons.append(reason)
        return None


class AsyncServer:
    lost = (CutError,)

    def __init__(self, server: Server) -> None:
        self._server = server

    async def list(self) -> Object:
        return self._server.list()

    async def watch(self, version: str) -> AsyncGenerator[bytes]:
        for chunk in self._server.watch(version):
            yield chunk

    async def pause(self, seconds: float, reason: str) -> None:
        self._server.pause(seconds, reason)


Texts = list[str]
Loop = Callable[..., Texts]


def _text(change: Any) -> str:
    if change is None:
        return "-"
    metadata = change.object["metadata"]
    return f"{'no ' if change.gone else ''}{metadata['uid']}@{metadata['resourceVersion']}"


def in_thread(server: Server, collection: Collection) -> Texts:
    texts: Texts = []
    with pytest.raises(OverError):
        for change in follow(server, collection):
            texts.append(_text(change))
    return texts


def on_event_loop(server: Server, collection: Collection) -> Texts:
    texts: Texts = []

    async def run() -> None:
        async for change in follow_async(AsyncServer(server), collection):
            texts.append(_text(change))

    with pytest.raises(OverError):
        asyncio.run(run())
    return texts


@pytest.fixture(params=[in_thread, on_event_loop])
def loop(request: pytest.FixtureRequest) -> Loop:
    run: Callable[[Server, Collection], Texts] = request.param

    def start(server: Server, collection: Collection | None = None) -> Texts:
        return run(server, collection or Collection(first_pause_s=1))

    return start


def test_what_changes_between_list_and_watch_is_not_lost(loop: Loop) -> None:
    """The watch begins at the version of the list, not at that of an object or at now."""
    server = Server(listed(10, item("a", 3)), [event("ADDED", item("b", 11)), event("DELETED", item("a", 12))])
    assert loop(server) == ["ua@3", "-", "ub@11", "no ua@12", "-"]
    assert server.asked == ["list", "watch 10"]


def test_a_watch_that_ends_in_time_goes_on_from_its_last_event(loop: Loop) -> None:
    server = Server(
        listed(10),
        [event("ADDED", item("a", 15))],
        [event("BOOKMARK", {"metadata": {"resourceVersion": "20"}})],
        [],
        [],
    )
    assert loop(server) == ["-", "ua@15", "-", "-", "-", "-"]
    assert server.asked == ["list", "watch 10", "watch 15", "watch 20", "pause 1", "watch 20", "pause 1"]
    assert set(server.reasons) == {""}


@pytest.mark.parametrize("gone", [[TOO_OLD], RefusedError(410, "too old")])
def test_a_version_that_is_too_old_leads_to_a_list_whose_differences_are_reported(gone: Any, loop: Loop) -> None:
    first = [event("MODIFIED", item("b", 12))]
    script = [[*first, *gone]] if isinstance(gone, list) else [first, gone]
    server = Server(
        listed(10, item("a", 1), item("b", 2), item("c", 3), item("d", 4)),
        *script,
        # a has another uid, b is gone, c is the same, d has changed.
        listed(30, item("a", 21, "other"), item("c", 3), item("d", 22)),
        [event("MODIFIED", item("c", 31))],
    )
    texts = [text for text in loop(server) if text != "-"]
    assert texts[:5] == ["ua@1", "ub@2", "uc@3", "ud@4", "ub@12"]
    assert texts[5:] == ["no ua@1", "no ub@12", "other@21", "ud@22", "uc@31"]
    assert server.asked[-3:] == ["pause 1", "list", "watch 30"]


def test_a_cut_connection_is_taken_up_where_it_was_without_half_a_line(loop: Loop) -> None:
    whole = json.dumps(event("MODIFIED", item("a", 12))).encode() + b"\n"
    server = Server(
        listed(10),
        [event("ADDED", item("a", 11)), whole[:30], CutError()],
        [whole[:20], b"", whole[20:] + b"\n" + json.dumps(event("ADDED", item("b", 13))).encode()],
        [event("ADDED", item("b", 13))],
    )
    assert loop(server) == ["-", "ua@11", "ua@12", "-", "ub@13", "-"]
    assert server.asked == ["list", "watch 10", "pause 1", "watch 11", "watch 12"]
    assert server.reasons[0] == "CutError"


def test_an_api_server_that_was_away_is_listed_again(loop: Loop) -> None:
    """It may come back with an older state, in which the version means something else."""
    server = Server(listed(10, item("a", 9)), [CutError()], CutError(), listed(5, item("a", 4)), [])
    assert loop(server) == ["ua@9", "-", "ua@4", "-", "-"]
    assert server.asked == ["list", "watch 10", "pause 1", "list", "pause 2", "list", "watch 5", "pause 1"]


def test_pauses_double_until_an_event_comes(loop: Loop) -> None:
    refused = RefusedError(403, "no watch for you")
    server = Server(
        *([listed(10), refused] * 5),
        *(listed(10), [event("ADDED", item("a", 11)), CutError("reset")]),
        CutError(),
    )
    loop(server, Collection(first_pause_s=1, longest_pause_s=5))
    pauses = [asked for asked in server.asked if asked.startswith("pause")]
    assert pauses == [f"pause {seconds}" for seconds in (1, 2, 4, 5, 5, 1, 2)]
    assert server.reasons[0] == "no watch for you"


def test_a_version_that_is_always_too_old_is_no_storm(loop: Loop) -> None:
    server = Server(*([listed(10), [TOO_OLD]] * 3))
    loop(server)
    assert [asked for asked in server.asked if asked.startswith("pause")] == ["pause 1", "pause 2", "pause 4"]


def test_what_is_sent_twice_is_reported_once(loop: Loop) -> None:
    twice = [event("ADDED", item("a", 11)), event("DELETED", item("b", 12))]
    server = Server(listed(10, item("b", 1)), [*twice, *twice, event("MODIFIED", item("a", 11))])
    assert loop(server) == ["ub@1", "-", "ua@11", "no ub@12", "-"]


def test_another_object_of_the_same_name_is_one_gone_and_one_new(loop: Loop) -> None:
    server = Server(listed(10, item("a", 1)), [event("MODIFIED", item("a", 11, "other"))])
    assert loop(server) == ["ua@1", "-", "no ua@1", "other@11", "-"]


def test_what_is_known_already_is_watched_from_there(loop: Loop) -> None:
    server = Server([event("MODIFIED", item("a", 8))], [TOO_OLD], listed(20))
    assert loop(server, Collection([item("a", 7)], "7", first_pause_s=1)) == ["ua@8", "-", "no ua@8", "-"]
    assert server.asked == ["watch 7", "watch 8", "pause 1", "list"]


def test_items_of_a_list_have_the_kind_that_events_have() -> None:
    collection = Collection()
    collection.listed(listed(10, item("a", 1)))
    assert {(pod["kind"], pod["apiVersion"]) for pod in collection.objects.values()} == {("Pod", "v1")}


def test_a_pause_can_end_the_loop() -> None:
    class Stopping(Server):
        def pause(self, seconds: float, reason: str) -> bool:  # noqa: ARG002 - as the loop calls it
            return True

    assert len(list(follow(Stopping(listed(10), []), Collection()))) == 2


def test_what_is_no_failure_of_the_api_server_ends_the_loop(loop: Loop) -> None:
    errors: Sequence[Exception] = [OverError()]
    assert loop(Server(listed(10), [event("ADDED", item("a", 11)), *errors])) == ["-", "ua@11"]
