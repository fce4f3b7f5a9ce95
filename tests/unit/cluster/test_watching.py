from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client, watch
from urllib3.exceptions import ProtocolError

from lab.cluster import assigner, watching


class FakeStream:
    """Serves one event per connection; `failures` are raised first, one per attempt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failures: Exception) -> None:
        self.failures = list(failures)
        self.since: list[str] = []
        monkeypatch.setattr(watch, "Watch", lambda: self)

    def stream(self, _: Any, *, resource_version: str, **__: Any) -> Any:
        self.since.append(resource_version)
        yield {"type": "MODIFIED"}

    def listing(self, **_: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return SimpleNamespace(metadata=SimpleNamespace(resource_version="42"))


def test_watch_goes_on_from_the_list_and_comes_back_after_every_end(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeStream(monkeypatch)
    seen = watching.changes(fake.listing, resync_s=60, stopping=threading.Event())
    for _ in range(4):
        next(seen)
    assert fake.since == ["42", "42"]


def test_lost_api_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = (
        ConnectionRefusedError(),
        ProtocolError("reset"),
        client.ApiException(status=410),
        client.ApiException(status=503),
    )
    fake = FakeStream(monkeypatch, *lost)
    next(watching.changes(fake.listing, resync_s=60, stopping=threading.Event(), first_backoff_s=0.001))
    assert fake.failures == []


def test_stopping_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    stopping.set()
    assert list(watching.changes(FakeStream(monkeypatch).listing, resync_s=60, stopping=stopping)) == []


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
