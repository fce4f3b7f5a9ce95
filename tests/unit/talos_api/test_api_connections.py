"""When a call's connection begins and ends: one for each call, from a machine that may restart between two."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from talos.api import calls, errors
from talos.api.client import MachineClient, connect
from talos.api.messages import new
from tests.unit.talos_api.machine_certificates import LOOPBACK, cluster
from tests.unit.talos_api.machine_server import Machine, fail, serving

_END_S = 10


@pytest.fixture
def machine() -> Iterator[Machine]:
    with serving(Machine.of(cluster())) as running:
        yield running


@pytest.fixture
def client(machine: Machine) -> Iterator[MachineClient]:
    with connect(LOOPBACK, cluster().client(), port=machine.port, attempts=1) as connected:
        yield connected


def test_an_upload_stops_when_it_is_refused(machine: Machine, client: MachineClient) -> None:
    def refuse(pieces: Iterator[Any], context: Any) -> None:
        next(pieces)
        fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "no space left")

    machine.answers["EtcdRecover"] = refuse
    machine.reads_uploads_first = False
    with pytest.raises(errors.MachineApiError, match="no space left"):
        client.etcd_recover(itertools.repeat(bytes(1 << 16)))


def test_a_snapshot_that_is_given_up_ends_on_the_machine(machine: Machine, client: MachineClient) -> None:
    ended = threading.Event()

    def endless(_request: Any, context: Any) -> Iterator[Any]:
        context.add_callback(ended.set)
        while context.is_active():
            yield new("common.Data", bytes=bytes(1 << 16))

    machine.answers["EtcdSnapshot"] = endless
    pieces = client.etcd_snapshot()
    next(pieces)
    pieces.close()  # type: ignore[attr-defined] # a generator
    assert ended.wait(_END_S)


def test_a_change_after_a_restart_is_sent_once(machine: Machine, client: MachineClient) -> None:
    machine.answers["Version"] = lambda _request, _context: new("machine.VersionResponse", messages=[{}])
    machine.answers["Reboot"] = lambda _request, _context: new("machine.RebootResponse", messages=[{"actor_id": "a1"}])
    client.version()
    assert machine.front
    machine.front.break_connections()
    assert client.reboot() == "a1"
    assert len(machine.asked(calls.REBOOT)) == 1
