"""The parts that live on the event loop, without a lab: deadlines, child processes, logs, watches."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from lab.runner.deadline import Deadline
from lab.runner.logs import LogSink
from lab.runner.network import AddressesExhaustedError, AddressPool
from lab.runner.probes import Threshold, http_headers, http_url
from lab.runner.process import CommandError, check, run
from lab.runner.watch import Reflector


def test_deadline_only_comes_nearer() -> None:
    async def scenario() -> None:
        deadline = Deadline()
        deadline.within(3600)
        waiting = asyncio.create_task(deadline.passed())
        await asyncio.sleep(0)
        deadline.within(0.05)
        deadline.within(1800)
        # Far from both: it passes at the near one or not at all.
        await asyncio.wait_for(waiting, 60)

    asyncio.run(scenario())


def test_deadline_limits_work() -> None:
    async def scenario() -> tuple[str | None, str | None]:
        async def work(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "done"

        deadline = Deadline()
        deadline.within(0.1)
        return await deadline.limit(work(0)), await deadline.limit(work(5))

    assert asyncio.run(scenario()) == ("done", None)


def test_run_gives_code_and_output_and_kills_at_the_limit() -> None:
    finished = asyncio.run(run(["sh", "-c", "echo out; echo err >&2; exit 3"]))
    assert (finished.code, finished.output) == (3, "out\nerr\n")
    assert asyncio.run(run(["sh", "-c", "kill -9 $$"])).code == 137
    with pytest.raises(TimeoutError):
        asyncio.run(run(["sleep", "3600"], timeout_s=0.1))
    with pytest.raises(CommandError, match="failed with 4"):
        asyncio.run(check(["sh", "-c", "exit 4"]))


def test_log_is_copied_and_rotated(tmp_path: Path) -> None:
    async def scenario() -> str:
        sink = LogSink(tmp_path / "main" / "0.log", tmp_path / "output", limit_bytes=100)
        for number in range(3):
            os.write(sink.writing, b"%d" % number * 60)
            await asyncio.sleep(0.1)
        os.write(sink.writing, b"\nlast words")
        sink.close()
        return sink.tail()

    assert asyncio.run(scenario()).endswith("last words")
    assert (tmp_path / "main" / "0.log.1").stat().st_size == 120
    assert (tmp_path / "main" / "0.log").stat().st_size == 71


def test_log_goes_on_after_a_pause(tmp_path: Path) -> None:
    async def scenario() -> None:
        sink = LogSink(tmp_path / "0.log", tmp_path / "output")
        os.write(sink.writing, b"one ")
        await asyncio.sleep(0.2)
        os.write(sink.writing, b"two")
        await asyncio.sleep(0.2)
        assert sink.path.read_bytes() == b"one two"
        sink.close()

    asyncio.run(scenario())


def test_next_runner_reads_on_and_the_writer_notices_nothing(tmp_path: Path) -> None:
    """What is written while no runner reads waits in the pipe, and no writer meets a broken one."""
    log, pipe = tmp_path / "0.log", tmp_path / "output"

    async def first() -> int:
        sink = LogSink(log, pipe)
        writing = os.dup(sink.writing)
        os.write(writing, b"one ")
        await asyncio.sleep(0.2)
        # As a killed process: closed, without a message.
        asyncio.get_running_loop().remove_reader(sink._reading)
        os.close(sink._reading)
        sink.close_writing()
        return writing

    async def second() -> None:
        sink = LogSink(log, pipe, taken_over=True)
        os.write(writing, b"three")
        os.close(writing)
        sink.close()

    writing = asyncio.run(first())
    os.write(writing, b"two ")
    asyncio.run(second())
    assert log.read_text() == "one two three"
    assert not pipe.exists()


def test_addresses_are_not_reused_at_once() -> None:
    pool = AddressPool()
    assert pool.take("a", "198.18.1.0/29") == "198.18.1.2"
    pool.give_back("a")
    assert pool.take("b", "198.18.1.0/29") == "198.18.1.3"
    for uid in "cdef":
        pool.take(uid, "198.18.1.0/29")
    assert len(set(pool._used.values())) == 5
    with pytest.raises(AddressesExhaustedError):
        pool.take("g", "198.18.1.0/29")


def test_address_of_a_pod_that_was_taken_over_is_not_reused_at_once_either() -> None:
    """Others still have the hardware address of the pod that had it."""
    pool = AddressPool()
    pool.keep("a", "198.18.1.2")
    pool.keep("b", "198.18.1.3")
    pool.keep("c", "198.18.9.7")
    pool.give_back("b")
    assert pool.take("d", "198.18.1.0/29") == "198.18.1.4"


def test_threshold_flips_after_as_many_in_a_row() -> None:
    count = Threshold(success=2, failure=3)
    assert [count.add(ok=ok) for ok in (True, True, True, False, False, True, False, False, False)] == [
        *(False, True, False, False, False, False, False, False, True)
    ]
    assert count.verdict is False


def test_http_probe_target() -> None:
    container = {"ports": [{"name": "admin", "containerPort": 19001}]}
    assert http_url({"port": "admin", "path": "ready"}, container, "198.18.1.2") == "http://198.18.1.2:19001/ready"
    assert http_url({"port": 1, "scheme": "HTTPS", "host": "h"}, container, "") == "https://h:1/"
    assert http_headers({"httpHeaders": [{"name": "Host", "value": "x"}]})["Host"] == "x"


class FakeApi:
    """A list of two Pods, then a watch that deletes one, then nothing more."""

    async def request(self, _method: str, _path: str) -> dict[str, Any]:
        return {
            "kind": "PodList",
            "metadata": {"resourceVersion": "10"},
            "items": [self.item("a", "5"), self.item("b", "6")],
        }

    async def watch(self, path: str, version: str) -> AsyncGenerator[bytes]:
        assert (path, version) == ("/p", "10")
        yield json.dumps({"type": "DELETED", "object": self.item("a", "11")}).encode() + b"\n"
        raise asyncio.CancelledError

    @staticmethod
    def item(name: str, version: str) -> dict[str, Any]:
        return {"metadata": {"namespace": "n", "name": name, "uid": name, "resourceVersion": version}}


def test_reflector_has_what_the_api_server_has_when_it_reports_a_change() -> None:
    reported: list[tuple[str, bool, bool, bool]] = []

    def on_change(pod: dict[str, Any], gone: bool) -> None:
        name = pod["metadata"]["name"]
        reported.append((name, gone, reflector.get("n", name) is not None, reflector.synced.is_set()))

    reflector = Reflector(FakeApi(), "/p", on_change)  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(reflector.run())
    assert reported == [("a", False, True, False), ("b", False, True, False), ("a", True, False, True)]
    assert [pod["metadata"]["name"] for pod in reflector.in_namespace("n")] == ["b"]
