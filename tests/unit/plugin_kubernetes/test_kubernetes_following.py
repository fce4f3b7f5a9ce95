"""Following one object: what passes, what ends the wait, and that a cluster without the kind has no object of it."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from urllib3.exceptions import ProtocolError

from lab.plugins.kubernetes.awaiting.following import follow
from lab.plugins.kubernetes.errors import ApiError, CancelledError, UnreachableError

LIVE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"},
}


class FakeCluster:
    """Plays one script of lists (mappings), watches (lists) and errors; afterwards the wait is cancelled."""

    def __init__(self, *script: Any) -> None:
        self.script, self.since = [*script], []  # type: ignore[var-annotated]

    def list_one(self, *_: Any) -> Any:
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"metadata": {"resourceVersion": "20"}, "items": answer}

    def watch_one(self, *_: Any, since: str, seconds: int) -> Generator[bytes]:
        assert seconds == 5
        self.since.append(since)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield from answer

    def pause(self, _: float) -> None:
        if not self.script:
            raise CancelledError("cancelled")


def outcomes(cluster: FakeCluster) -> list[bool | None]:
    """For each change, whether the object is gone; None where nothing happened."""
    seen: list[bool | None] = []
    with pytest.raises(CancelledError):
        seen.extend(change and change.gone for change in follow(cluster, LIVE, lambda: 5))  # type: ignore[arg-type]
    return seen


def line(kind: str, version: str) -> bytes:
    changed = {**LIVE, "metadata": {**LIVE["metadata"], "resourceVersion": version}}
    return json.dumps({"type": kind, "object": changed}).encode() + b"\n"


def test_it_begins_after_what_is_known_and_reports_each_end_of_a_watch() -> None:
    cluster = FakeCluster([line("MODIFIED", "8"), line("DELETED", "9")], [])
    assert outcomes(cluster) == [False, True, None, None]
    assert cluster.since == ["7", "9"]


def test_a_refusal_that_passes_leads_to_a_list() -> None:
    for passing in (ApiError(410, "Expired", "too old"), ApiError(503, "", "starting"), ProtocolError("cut")):
        cluster = FakeCluster(passing, [LIVE], [])
        assert outcomes(cluster) == [None, None]
        assert cluster.since == ["7", "20"]


def test_an_object_that_a_list_lacks_is_gone_and_so_is_one_of_a_kind_that_is_not_served() -> None:
    gone = ApiError(404, "NotFound", "the server could not find the requested resource")
    assert outcomes(FakeCluster(ApiError(410, "Expired", "too old"), [], [])) == [True, None, None]
    assert outcomes(FakeCluster(gone, gone, [])) == [True, None, None]


def test_another_object_of_its_name_does_not_keep_it() -> None:
    other = {**LIVE, "metadata": {**LIVE["metadata"], "uid": "other"}}
    assert outcomes(FakeCluster(ApiError(410, "Expired", "too old"), [other], [])) == [True, False, None, None]


@pytest.mark.parametrize(
    "script", [[ApiError(403, "Forbidden", "no")], [ProtocolError("cut"), UnreachableError("away")]]
)
def test_what_does_not_pass_ends_it(script: list[Exception]) -> None:
    with pytest.raises((ApiError, UnreachableError)):
        list(follow(FakeCluster(*script), LIVE, lambda: 5))  # type: ignore[arg-type]
