from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client
from urllib3.exceptions import ProtocolError

from lab.cluster import assigner, watching


class FakeListing:
    """A list method of the kubernetes client. `failures` are raised first, one per request."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.since: list[str] = []

    def __call__(self, *, _preload_content: bool, resource_version: str = "", watch: bool = False, **_: Any) -> Any:
        assert not _preload_content
        if self.failures:
            raise self.failures.pop(0)
        if not watch:
            return SimpleNamespace(data=json.dumps({"metadata": {"resourceVersion": "42"}, "items": []}))
        self.since.append(resource_version)
        version = str(int(resource_version) + 1)
        item = {"metadata": {"name": "a", "resourceVersion": version}}
        line = json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n"
        return SimpleNamespace(stream=lambda **_: iter([line]), close=lambda: None)


def test_there_is_one_at_first_one_at_each_change_and_one_at_each_resync() -> None:
    fake = FakeListing()
    seen = watching.changes(fake, resync_s=60, stopping=threading.Event())
    for _ in range(6):
        next(seen)
    assert fake.since == ["42", "43", "44"]


def test_lost_api_server_is_asked_again() -> None:
    lost = (
        ConnectionRefusedError(),
        ProtocolError("reset"),
        client.ApiException(status=410),
        client.ApiException(status=503),
    )
    fake = FakeListing(*lost)
    next(watching.changes(fake, resync_s=60, stopping=threading.Event(), first_pause_s=0.001))
    assert fake.failures == []


def test_stopping_ends_it() -> None:
    stopping = threading.Event()
    stopping.set()
    assert list(watching.changes(FakeListing(), resync_s=60, stopping=stopping)) == []
    # Also while the API server is away.
    away = FakeListing(*[ConnectionRefusedError()] * 100)
    assert list(watching.changes(away, resync_s=60, stopping=stopping)) == []
    assert len(away.failures) == 99


def test_failed_reconciliation_is_tried_again_without_a_further_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigner, "changes", lambda *_, **__: iter([None]))
    tries: list[int] = []
    succeeded, stopping = threading.Event(), threading.Event()

    def reconcile() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise client.ApiException(status=409, reason="Conflict")
        succeeded.set()

    assigner.keep(reconcile, [lambda: None], stopping, retry_s=0.001)
    assert succeeded.wait(5)
    stopping.set()
