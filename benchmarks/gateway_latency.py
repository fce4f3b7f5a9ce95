"""What gateway, AI gateway and picker add to a request, against a direct call to the replica behind them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import click

from benchmarks import models, processes
from benchmarks.arithmetic import median, percentile
from benchmarks.client import Answer, Connection
from benchmarks.report import Cell, Result, Row, Table
from lab.paths import Lab

HELP = "latency that gateway, AI gateway and picker add, at several concurrencies"
MODEL = "bench-instant"
CONCURRENCIES = (1, 8, 32, 64)
_PROMPT = " ".join(["word"] * 100)
_TOKENS = 8
_LEAST_REQUESTS = 200
_IDLE_S = 5.0
# Answers as fast as it can, so that what is added is seen.
_INSTANT = {
    "--latency-calculator": "constant",
    "--prefill-overhead": "0s",
    "--prefill-time-per-token": "0s",
    "--time-to-first-token": "0s",
    "--inter-token-latency": "0s",
    "--time-factor-under-load": "1",
    "--max-num-seqs": "256",
}
_PROGRAMS = {
    "envoy": "Envoy",
    "ai-gateway-extproc": "AI gateway",
    "app": "AI gateway",
    "epp": "picker",
    "llm-d-inference-sim": "replica",
}


@dataclass(kw_only=True)
class Arm:
    """All answers on one way at one concurrency."""

    answers: list[Answer] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    """Requests per second, one a round."""
    cpu_s: dict[str, float] = field(default_factory=dict)

    def ms(self, share: float, times: Iterable[float]) -> float:
        return percentile([1000 * value for value in times], share)

    def first(self, share: float) -> float:
        return self.ms(share, (answer.first_token_s for answer in self.answers))

    def whole(self, share: float) -> float:
        return self.ms(share, (answer.whole_s for answer in self.answers))


PARAMETERS = (
    click.Option(
        ["--latency-rounds"], type=int, default=5, show_default=True, help="gateway_latency: rounds of each way"
    ),
)


def run(lab: Lab, *, latency_rounds: int) -> Result:
    """Raises LabError when the platform does not come up or a request fails."""
    with models.served(lab, {MODEL: models.simulator(replicas=1)}) as bench:
        models.set_arguments(bench, MODEL, _INSTANT)
        ways: dict[str, Callable[[], Connection]] = {
            "direct": partial(Connection, f"{bench.replicas(MODEL)[0]}/v1", {}),
            "gateway": bench.connection,
        }
        idle = _idle(lab)
        arms = {(way, width): Arm() for width in CONCURRENCIES for way in ways}
        for width in CONCURRENCIES:
            for connection in ways.values():
                asyncio.run(_load(connection, width, 2 * width))
            for number in range(1, latency_rounds + 1):
                # Whatever else the machine does, it does to both ways.
                for way, connection in sorted(ways.items(), reverse=number % 2 == 0):
                    _measure(lab, arms[way, width], idle, connection, width)
            _say(f"concurrency {width}: {_row(width, arms['direct', width], arms['gateway', width], 'first')}")
    return _result(arms, latency_rounds, idle)


def _measure(lab: Lab, arm: Arm, idle: Mapping[str, float], connection: Callable[[], Connection], width: int) -> None:
    count = max(_LEAST_REQUESTS, 8 * width)
    meter = _Meter(lab)
    started = time.perf_counter()
    answers = asyncio.run(_load(connection, width, count))
    wall_s = time.perf_counter() - started
    for name, seconds in meter.cpu_s().items():
        arm.cpu_s[name] = arm.cpu_s.get(name, 0.0) + seconds - wall_s * idle.get(name, 0.0)
    arm.rates.append(count / wall_s)
    arm.answers += answers


class _Meter:
    """CPU time since its creation of the client and of what a request passes, by name."""

    def __init__(self, lab: Lab) -> None:
        self._client_s = time.process_time()
        # One by one, because an Envoy that still drains may end in between.
        self._before = {
            pid: (name, processes.cpu_s(pid) or 0.0)
            for program, pids in processes.lab_programs(lab).items()
            if (name := _PROGRAMS.get(program))
            for pid in pids
        }

    def cpu_s(self) -> dict[str, float]:
        total = {"client": time.process_time() - self._client_s}
        for pid, (name, before) in self._before.items():
            total[name] = total.get(name, 0.0) + max(0.0, (processes.cpu_s(pid) or 0.0) - before)
        return total


def _idle(lab: Lab) -> dict[str, float]:
    """CPU seconds a second that the same processes use without a request: probes, scrapes of all models' replicas."""
    meter = _Meter(lab)
    time.sleep(_IDLE_S)
    return {name: seconds / _IDLE_S for name, seconds in meter.cpu_s().items()}


async def _load(new: Callable[[], Connection], width: int, count: int) -> list[Answer]:
    """`count` requests by `width` clients, each with one connection and one request at a time."""
    answers: list[Answer] = []
    left = iter(range(count))
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": _PROMPT}],
        "max_tokens": _TOKENS,
        "ignore_eos": True,
    }

    async def one_client() -> None:
        async with new() as connection:
            for _ in left:
                answers.append(await connection.stream(body))

    await asyncio.gather(*(one_client() for _ in range(width)))
    return answers


def _row(width: int, direct: Arm, gateway: Arm, what: str) -> Row:
    ask = Arm.first if what == "first" else Arm.whole
    row: dict[str, Cell] = {"concurrency": width}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        row[f"direct {name}"] = round(ask(direct, share), 2)
        row[f"gateway {name}"] = round(ask(gateway, share), 2)
        row[f"added {name}"] = round(ask(gateway, share) - ask(direct, share), 2)
    return row


def _result(arms: Mapping[tuple[str, int], Arm], rounds: int, idle: Mapping[str, float]) -> Result:
    pairs = [(width, arms["direct", width], arms["gateway", width]) for width in CONCURRENCIES]
    first = [_row(width, direct, gateway, "first") for width, direct, gateway in pairs]
    rates = [
        {
            "concurrency": width,
            "requests": len(gateway.answers),
            "direct, requests/s": round(median(direct.rates)),
            "gateway, requests/s": round(median(gateway.rates)),
            **{f"{name}, CPU ms a request": _cpu_ms(gateway, name) for name in gateway.cpu_s},
        }
        for width, direct, gateway in pairs
    ]
    parts = {name: _cpu_ms(pairs[0][2], name) for name in pairs[0][2].cpu_s}
    added = {name: value for name, value in parts.items() if name not in ("client", "replica")}
    return Result(
        benchmark="gateway_latency",
        question="What do Envoy, the AI gateway and the picker add to a request, against a direct call to the replica?",
        conditions={
            "model": "one simulator without delays of its own: it streams its tokens as fast as it can",
            "request": f"{len(_PROMPT.split())} words, {_TOKENS} tokens streamed, connections kept alive",
            "load": "closed loop: each client sends its next request when the last one has ended",
            "rounds": f"{rounds}, direct and through the gateway in turn, "
            f"at least {_LEAST_REQUESTS} requests a round and way; percentiles over all rounds",
            "cpu_time": "beyond what the same processes use when idle: "
            + ", ".join(f"{name} {100 * share:.0f} % of a core" for name, share in idle.items()),
            "cores_shared_by": f"client, Envoy, AI gateway, picker, replica and the lab's control plane share "
            f"{os.cpu_count()} cores, so from concurrency 8 on the figures are mostly waiting for a core",
        },
        tables=[
            Table(title="Time to first token, ms", rows=first),
            Table(title="Whole request, ms", rows=[_row(width, a, b, "whole") for width, a, b in pairs]),
            Table(title="Through the gateway: requests/s, and CPU time by process", rows=rates),
        ],
        findings=[
            f"At one request at a time the gateway adds {first[0]['added p50']} ms to the first token (p50), "
            f"{first[0]['added p99']} ms (p99).",
            f"A request costs {sum(added.values()):.2f} ms of CPU on the way: "
            + ", ".join(f"{name} {value:.2f}" for name, value in added.items())
            + ".",
        ],
    )


def _cpu_ms(arm: Arm, name: str) -> float:
    return round(1000 * arm.cpu_s[name] / len(arm.answers), 2)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
