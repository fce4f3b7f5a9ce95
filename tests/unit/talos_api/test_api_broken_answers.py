"""What the client makes of answers that break off: half an answer is never taken for a whole one."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from talos.api import calls, errors
from talos.api.client import MachineClient, connect
from talos.api.messages import new
from talos.api.results import ApplyMode
from tests.unit.talos_api.broken_server import (
    BrokenServer,
    Step,
    body,
    framed,
    going_down,
    hang_up,
    headers,
    pause,
    reset,
    trailers,
)
from tests.unit.talos_api.machine_certificates import LOOPBACK, cluster

VERSION = framed(new("machine.VersionResponse", messages=[{"version": {"tag": "v1.13.9"}}]).SerializeToString())

_LONG_S, _MANY = 60, 300


@contextmanager
def broken(
    script: Callable[[int], list[Step]] | list[Step], **options: Any
) -> Iterator[tuple[BrokenServer, MachineClient]]:
    owner = cluster()
    scripted = script if callable(script) else lambda _: script
    server = BrokenServer(owner.machine(), owner.ca, scripted)
    try:
        with connect(LOOPBACK, owner.client(), node="hgx-1", port=server.port, **options) as client:
            client._sleep = lambda _: None
            yield server, client
    finally:
        server.close()


def data(content: bytes) -> bytes:
    return framed(new("common.Data", bytes=content).SerializeToString())


def kubeconfig_archive() -> bytes:
    buffer, text = io.BytesIO(), b"kind: Config\n"
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("kubeconfig")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return gzip.compress(buffer.getvalue())


@pytest.mark.parametrize(
    "broken_off",
    [
        [headers(), body(VERSION[:-3]), reset()],
        [headers(), body(VERSION[:-3]), hang_up],
        [headers(), reset()],
        [reset()],
        [headers(), hang_up],
        [hang_up],
        [headers(), trailers(14, "going down")],
    ],
    ids=["cut-and-reset", "cut-and-gone", "no-body-reset", "reset", "no-body-gone", "gone", "unavailable"],
)
def test_a_read_is_asked_again_after_a_broken_answer(broken_off: list[Step]) -> None:
    with broken(lambda number: broken_off if number < 3 else [headers(), body(VERSION), trailers(0)]) as (_, client):
        assert client.version().tag == "v1.13.9"
    with broken(broken_off, attempts=2) as (_, client), pytest.raises(errors.UnreachableError) as raised:
        client.version()
    assert (raised.value.node, raised.value.call) == ("hgx-1", "Version")


@pytest.mark.parametrize(
    "ended_early",
    [[headers(), body(VERSION[:-3], end=True)], [headers(), body(VERSION[:3], end=True)], [headers(end=True)]],
    ids=["cut", "cut-prefix", "empty"],
)
def test_an_answer_that_ends_early_is_never_whole(ended_early: list[Step]) -> None:
    with broken(ended_early) as (server, client), pytest.raises(errors.MachineApiError):
        client.version()
    assert len(server.requests) == 1


def test_a_status_in_the_head_is_read() -> None:
    head = headers(("grpc-status", "7"), ("grpc-message", "not%20authorized"), end=True)
    with broken([head]) as (server, client), pytest.raises(errors.DeniedError, match="not authorized"):
        client.version()
    assert len(server.requests) == 1


def test_a_status_in_a_trailer_is_read() -> None:
    with broken([headers(), trailers(9, "not in this stage")]) as (server, client):
        with pytest.raises(errors.NotReadyError, match="not in this stage"):
            client.version()
        assert len(server.requests) == 1


def test_a_status_decides_over_what_came_before_it() -> None:
    for before in (VERSION, VERSION[:-3]):
        steps = [headers(), body(before), trailers(9, "not in this stage")]
        with broken(steps) as (_, client), pytest.raises(errors.NotReadyError, match="not in this stage"):
            client.version()


def test_a_machine_that_goes_down_ends_the_call_that_it_has() -> None:
    with broken([going_down(), headers(), body(VERSION), trailers(0)]) as (_, client):
        assert client.version().tag == "v1.13.9"


@pytest.mark.parametrize("ending", [[], [trailers(0)], [reset()], [hang_up]], ids=["nothing", "ok", "reset", "gone"])
def test_half_a_kubeconfig_is_never_a_kubeconfig(ending: list[Step]) -> None:
    half = data(kubeconfig_archive()[:-6])
    first = body(half, end=not ending)
    with broken([headers(), first, *ending], attempts=2) as (_, client), pytest.raises(errors.MachineApiError):
        client.kubeconfig()


@pytest.mark.parametrize("ending", [[body(b"", end=True)], [reset()], [hang_up]], ids=["nothing", "reset", "gone"])
def test_no_answer_is_whole_without_its_status(ending: list[Step]) -> None:
    page = b"p" * 512
    asked: list[tuple[bytes, Callable[[MachineClient], object]]] = [
        (VERSION, MachineClient.version),
        (data(kubeconfig_archive()), MachineClient.kubeconfig),
        (data(page + hashlib.sha256(page).digest()), lambda client: list(client.etcd_snapshot())),
        (b"", MachineClient.extensions),
    ]
    for whole, ask in asked:
        steps = [headers(), body(whole), *ending]
        with broken(steps, attempts=2) as (_, client), pytest.raises(errors.MachineApiError):
            ask(client)
        with broken([headers(), body(whole), trailers(0)]) as (_, client):
            ask(client)


def test_a_snapshot_that_ends_early_is_an_error_whatever_the_status() -> None:
    page = b"p" * 512
    whole = page * 2 + hashlib.sha256(page * 2).digest()
    for ending in ([trailers(0)], [reset()], [hang_up]):
        with broken([headers(), body(data(whole[:-7])), *ending]) as (_, client), pytest.raises(errors.MachineApiError):
            list(client.etcd_snapshot())


def test_a_change_whose_answer_is_lost_is_not_sent_twice() -> None:
    whole = framed(new("machine.ApplyConfigurationResponse", messages=[{"mode": 2}]).SerializeToString())
    ways: list[list[Step]] = [
        [hang_up],
        [headers(), reset()],
        [headers(), body(whole), hang_up],
        [headers(), body(whole), reset()],
    ]
    for lost in ways:
        with broken(lost) as (server, client):
            with pytest.raises(errors.MachineApiError):
                client.apply_configuration(b"version: v1alpha1\n", mode=ApplyMode.AUTO)
            assert len(server.requests) == 1


def test_an_installer_without_its_exit_code_has_not_succeeded() -> None:
    reported = framed(
        new("machine.LifecycleServiceUpgradeResponse", progress={"message": "writing"}).SerializeToString()
    )
    for ending in ([trailers(0)], [reset()], [hang_up]):
        with broken([headers(), body(reported), *ending]) as (server, client):
            with pytest.raises(errors.MachineApiError) as raised:
                client.install_upgrade("image")
            assert not isinstance(raised.value, errors.UpgradeFailedError)
            assert len(server.requests) == 1


@pytest.mark.parametrize("call", [calls.VERSION, calls.RESOURCE_LIST], ids=["unary", "stream"])
def test_a_deadline_holds_when_the_machine_says_nothing(call: calls.Call) -> None:
    over = threading.Event()
    with broken([headers(), pause(over, _LONG_S), hang_up]) as (_, client):
        with pytest.raises(errors.TooSlowError):
            _ask(client, call, deadline_s=1)
        over.set()


def test_a_deadline_holds_when_the_machine_drips() -> None:
    over, dripped = threading.Event(), []

    def drip(connection: Any, stream: int) -> bool:
        over.wait(0.2)
        dripped.append(stream)
        return body(b"\0" if len(dripped) == 1 else b"\1")(connection, stream)

    with broken([headers(), *[drip] * _MANY, hang_up]) as (_, client):
        with pytest.raises(errors.TooSlowError):
            _ask(client, calls.VERSION, deadline_s=1)
        assert len(dripped) < _MANY
        over.set()


def test_a_compressed_or_endless_message_is_refused() -> None:
    for frame in (b"\1" + VERSION[1:], b"\0\xff\xff\xff\xff"):
        with broken([headers(), body(frame, end=True)]) as (_, client), pytest.raises(errors.MachineApiError):
            client.version()


def test_what_is_no_grpc_server_is_reported_as_such() -> None:
    def page(connection: Any, stream: int) -> bool:
        connection.send_headers(stream, [(":status", "502")], end_stream=True)
        return True

    with broken([page], attempts=1) as (_, client), pytest.raises(errors.UnreachableError, match="HTTP 502"):
        client.version()


def _ask(client: MachineClient, call: calls.Call, *, deadline_s: float) -> None:
    shorter = replace(call, deadline_s=deadline_s)
    request = new(call.request)
    if call.streams:
        client._repeat(shorter, lambda: list(client._stream(shorter, request)))
    else:
        client._unary(shorter, request)
