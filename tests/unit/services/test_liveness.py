"""A replica that runs requests without a step is to be restarted, and one that works, idles or loads is not."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from lab.free_ports import free_port
from services.liveness import progress
from services.liveness.__main__ import SILENCE_S, StallWatch, fetched
from stacks.facts import metrics
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("002.11", "opening 22")

ROOT = Path(__file__).parents[3]
STALL_S = 30.0


def scrape(running: int, waiting: int = 0, engine: int = 0, **values: float) -> str:
    """Metrics of an engine core, in vLLM's form. values: by the end of a mark's name."""
    labels = f'{{engine="{engine}",model_name="chat"}}'
    running_name, waiting_name = progress.HELD
    lines = [
        f"# TYPE {running_name} gauge",
        f"{running_name}{labels} {running}.0",
        f"{waiting_name}{labels} {waiting}.0",
    ]
    lines += [f"vllm:{name}{labels} {value}" for name, value in {"generation_tokens_total": 0.0, **values}.items()]
    # No mark: the front end counts what it refuses, and when each counter began.
    lines += [f"vllm:admission_rejections_total{labels} {len(lines)}", f"vllm:generation_tokens_created{labels} 1.7e9"]
    return "\n".join(lines) + "\n"


class Engine:
    """What an engine answers, and the time."""

    def __init__(self) -> None:
        self.now, self.well, self.text = 0.0, True, scrape(0)
        self.watch = StallWatch(
            stall_s=STALL_S, health="health", metrics="metrics", fetch=self.fetch, clock=lambda: self.now
        )

    def fetch(self, what: str) -> str:
        if not self.well:
            raise OSError("refused")
        return self.text if what == "metrics" else ""

    def after(self, seconds: float, text: str = "") -> str:
        """The verdict so many seconds later."""
        self.now += seconds
        self.text = text or self.text
        return self.watch.verdict()


@pytest.mark.parametrize("mark", [name.removeprefix("vllm:") for name in progress.MARKS])
def test_each_mark_alone_is_a_step(mark: str) -> None:
    engine = Engine()
    for step in range(100):
        assert engine.after(STALL_S - 1, scrape(3, 0, 0, **{mark: step / 128})) == ""
    assert engine.after(STALL_S - 1) == ""
    assert engine.after(2) == "no step for 31 s with 3 requests on rank 0"


def test_a_chunk_of_a_long_prompt_is_a_step_although_it_gives_no_token() -> None:
    engine = Engine()
    shares = [engine.after(STALL_S, scrape(1, kv_cache_usage_perc=chunk / 40)) for chunk in range(40)]
    assert set(shares) == {""}


def test_a_core_that_hung_before_it_began_a_request_is_seen_by_what_waits() -> None:
    engine = Engine()
    engine.after(0, scrape(0, waiting=3))
    assert engine.after(STALL_S + 1) == "no step for 31 s with 3 requests on rank 0"


def test_requests_that_come_and_go_are_no_step() -> None:
    """A simulator counts them itself; a picker sends more to a replica that hangs."""
    engine = Engine()
    verdicts = [engine.after(STALL_S / 3, scrape(1 + look, waiting=look % 2)) for look in range(5)]
    assert verdicts == ["", "", "", "", "no step for 40 s with 5 requests on rank 0"]


def test_an_idle_engine_is_well_and_its_time_begins_with_a_request() -> None:
    engine = Engine()
    for _ in range(100):
        assert engine.after(STALL_S) == ""
    assert engine.after(STALL_S, scrape(1)) == ""
    assert engine.after(STALL_S) == ""
    assert "no step" in engine.after(1)
    # Its client has left before a step that counted it.
    assert engine.after(1, scrape(0)) == ""


def test_one_rank_that_hangs_beside_others_is_seen() -> None:
    engine = Engine()
    verdicts = [
        engine.after(10, scrape(2, engine=0, generation_tokens_total=step) + scrape(1, engine=1)) for step in range(6)
    ]
    assert verdicts == [
        "",
        "",
        "",
        "",
        *(f"no step for {seconds} s with 1 requests on rank 1" for seconds in (40, 50)),
    ]


def test_it_lives_again_with_its_next_step() -> None:
    """Else an engine would be restarted that went on between two probes."""
    engine = Engine()
    engine.after(0, scrape(1))
    assert engine.after(STALL_S + 1)
    assert engine.after(1, scrape(1, generation_tokens_total=1)) == ""


def test_an_engine_that_does_not_answer_gets_a_minute() -> None:
    """Its front end may be busy with long prompts. A start is not counted: the kubelet does not ask before its end."""
    engine = Engine()
    engine.after(0, scrape(1))
    engine.well = False
    assert engine.after(SILENCE_S) == ""
    assert engine.after(1) == "no answer for 61 s: refused"
    engine.well = True
    # By then it has worked.
    assert engine.after(1, scrape(1, generation_tokens_total=9)) == ""


def test_the_pinned_vllm_has_what_it_is_judged_by() -> None:
    known = metrics.load()["vllm"]
    names = {*known.counters, *known.gauges, *(f"{name}_count" for name in known.histograms)}
    assert {*progress.HELD, *progress.MARKS} <= names
    simulator = metrics.load()["simulator"]
    names = {*simulator.counters, *simulator.gauges, *(f"{name}_count" for name in simulator.histograms)}
    assert {*progress.HELD, *progress.MARKS} - names == {"vllm:iteration_tokens_total_count"}


@contextmanager
def answering(text: str) -> Iterator[str]:
    """A server of metrics on this machine; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in ("/health", "/metrics") else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_an_answer_that_is_no_success_is_no_answer() -> None:
    with answering("") as url, pytest.raises(OSError, match="404"):
        fetched(f"{url}/elsewhere")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(OSError, match="timed out"):
        fetched(f"http://127.0.0.1:{silent.getsockname()[1]}/health")


def test_the_program_answers_the_kubelet_and_ends_at_once() -> None:
    """As process 1 of its container it would otherwise outlive each engine by the pod's grace period."""
    port = free_port()

    def asked() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    with answering(scrape(2)) as url:
        flags = [f"--engine={url}", "--health=/health", "--stall-s=0.01", f"--port={port}"]
        command = [sys.executable, "-m", "services.liveness", *flags]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as child:
            try:
                assert eventually(asked) == (200, "alive")
                assert eventually(lambda: asked()[0] == 503)
                assert asked()[1].startswith("no step for 0 s with 2 requests")
                child.send_signal(signal.SIGTERM)
                _, log = child.communicate(timeout=60)
            finally:
                child.kill()
    assert child.returncode == 0
    assert log.count("the engine is to be restarted: no step") == 1
