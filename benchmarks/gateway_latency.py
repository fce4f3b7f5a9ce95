"""What gateway, AI gateway and picker add to a request, against a direct call to the replica behind them."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
# Answers as fast as it can, so that what is added stands out.
_INSTANT = (
    "--latency-calculator=constant",
    "--prefill-overhead=0s",
    "--prefill-time-per-token=0s",
    "--time-to-first-token=0s",
    "--inter-token-latency=0s",
    "--time-factor-under-load=1",
    "--max-num-seqs=256",
)
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--latency-rounds", type=int, default=5, help="rounds of each way (default: %(default)s)")


def run(lab: Lab, arguments: argparse.Namespace) -> Result:
    """Raises LabError when the platform does not come up or a request fails."""
    rounds = arguments.latency_rounds
    with models.served(lab, {MODEL: models.simulator(replicas=1, arguments=_INSTANT)}) as bench:
        ways: dict[str, tuple[str, Mapping[str, str]]] = {
            "direct": (f"{bench.replicas(MODEL)[0]}/v1", {}),
            "gateway": (bench.front.endpoint, bench.headers),
        }
        programs = processes.lab_programs(lab)
        arms = {(way, width): Arm() for width in CONCURRENCIES for way in ways}
        for width in CONCURRENCIES:
            for url, headers in ways.values():
                asyncio.run(_load(url, headers, width, 2 * width))
            for number in range(1, rounds + 1):
                # Whatever else the machine does, it does to both ways.
                for way, (url, headers) in sorted(ways.items(), reverse=number % 2 == 0):
                    _measure(arms[way, width], programs, url, headers, width)
            _say(f"concurrency {width}: {_row(width, arms['direct', width], arms['gateway', width], 'first')}")
    return _result(arms, rounds)


def _measure(arm: Arm, programs: Mapping[str, Sequence[int]], url: str, headers: Mapping[str, str], width: int) -> None:
    count = max(_LEAST_REQUESTS, 8 * width)
    before = _cpu_s(programs)
    started = time.perf_counter()
    answers = asyncio.run(_load(url, headers, width, count))
    arm.rates.append(count / (time.perf_counter() - started))
    arm.answers += answers
    for name, seconds in _cpu_s(programs).items():
        arm.cpu_s[name] = arm.cpu_s.get(name, 0.0) + seconds - before[name]


async def _load(url: str, headers: Mapping[str, str], width: int, count: int) -> list[Answer]:
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
        async with Connection(url, headers) as connection:
            for _ in left:
                answers.append(await connection.stream(body))

    await asyncio.gather(*(one_client() for _ in range(width)))
    return answers


def _cpu_s(programs: Mapping[str, Sequence[int]]) -> dict[str, float]:
    total = {"client": time.process_time()}
    for program, name in _PROGRAMS.items():
        total[name] = total.get(name, 0.0) + processes.total_cpu_s(programs.get(program, ()))
    return total


def _row(width: int, direct: Arm, gateway: Arm, what: str) -> Row:
    ask = Arm.first if what == "first" else Arm.whole
    row: dict[str, Cell] = {"concurrency": width}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        row[f"direct {name}"] = round(ask(direct, share), 2)
        row[f"gateway {name}"] = round(ask(gateway, share), 2)
        row[f"added {name}"] = round(ask(gateway, share) - ask(direct, share), 2)
    return row


def _result(arms: Mapping[tuple[str, int], Arm], rounds: int) -> Result:
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
