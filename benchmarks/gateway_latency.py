"""What the gateway's parts add to a request, against a direct call to the replica behind them.

Twice: with keys compared by Envoy itself, and with a gatekeeper that reads each body, for tenants with every limit.
Beside the second, LiteLLM's proxy leads to the same replica.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click

from benchmarks import gateway_meter, litellm_proxy, models
from benchmarks.arithmetic import median, percentile
from benchmarks.client import Answer, Connection
from benchmarks.report import Cell, Result, Row, Table, note
from lab.paths import Lab

HELP = "latency that the gateway adds, with keys alone and with every feature, and that LiteLLM's proxy adds"
MODEL = "bench-instant"
KEYS, EVERYTHING = "keys alone", "every feature"
DIRECT, GATEWAY, LITELLM = "direct", "gateway", "LiteLLM"
CONCURRENCIES = (1, 8, 32, 64)
_WORDS = 100
_TOKENS = 8
_LEAST_REQUESTS = 200
# Answers as fast as it can, so that what is added is seen.
INSTANT = {
    "--latency-calculator": "constant",
    "--prefill-overhead": "0s",
    "--prefill-time-per-token": "0s",
    "--time-to-first-token": "0s",
    "--inter-token-latency": "0s",
    "--time-factor-under-load": "1",
    "--max-num-seqs": "256",
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


def everything(site: dict[str, Any]) -> None:
    """A gatekeeper, and a plan with all limits for each tenant, none of which the load reaches."""
    site["callers"] = {"decided_by": "gatekeeper"}
    counted = ("requests_per_minute", "tokens_per_minute", "tokens_per_hour", "tokens_per_day")
    site["plans"] = {
        "all": dict.fromkeys(counted, 10**9)
        | {"parallel_requests": 1000, "max_answer_tokens": 1000, "max_prompt_tokens": 10**6}
    }
    for tenant in site["tenants"].values():
        tenant["plan"] = "all"


# Ways through the gateway, and what they change in the lab's site.
SITES: dict[str, Callable[[dict[str, Any]], None]] = {KEYS: lambda _: None, EVERYTHING: everything}


def run(lab: Lab, *, latency_rounds: int) -> Result:
    """Raises LabError when the platform does not come up or a request fails."""
    arms: dict[tuple[str, str, int], Arm] = {}
    idle: dict[str, float] = {}
    for site, edit in SITES.items():
        with models.served(lab, {MODEL: models.simulator(replicas=1)}, edit) as bench, ExitStack() as beside:
            models.set_arguments(bench, MODEL, INSTANT)
            engine = f"{bench.replicas(MODEL)[0]}/v1"
            ways: dict[str, Callable[[], Connection]] = {
                DIRECT: partial(Connection, engine, {}),
                GATEWAY: bench.connection,
            }
            if site == EVERYTHING:
                proxy = beside.enter_context(litellm_proxy.serving(lab, MODEL, engine))
                ways[LITELLM] = partial(Connection, *proxy)
            idle = _walk(bench, site, ways, arms, latency_rounds)
    return _result(arms, latency_rounds, idle)


def _walk(
    bench: models.Bench,
    site: str,
    ways: Mapping[str, Callable[[], Connection]],
    arms: dict[tuple[str, str, int], Arm],
    rounds: int,
) -> dict[str, float]:
    idle = gateway_meter.idle(bench.lab)
    for width in CONCURRENCIES:
        arms |= {(site, way, width): Arm() for way in ways}
        for connection in ways.values():
            asyncio.run(load(connection, width, 2 * width))
        for number in range(1, rounds + 1):
            # Whatever else the machine does, it does to all ways.
            for way, connection in sorted(ways.items(), reverse=number % 2 == 0):
                _measure(bench.lab, arms[site, way, width], idle, connection, width)
        for way in [way for way in ways if way != DIRECT]:
            row = _row(width, arms[site, DIRECT, width], arms[site, way, width], "first", way)
            note(f"{site}, concurrency {width}: {row}")
    return idle


def _measure(lab: Lab, arm: Arm, idle: Mapping[str, float], connection: Callable[[], Connection], width: int) -> None:
    count = max(_LEAST_REQUESTS, 8 * width)
    meter = gateway_meter.Meter(lab)
    started = time.perf_counter()
    answers = asyncio.run(load(connection, width, count))
    wall_s = time.perf_counter() - started
    for name, seconds in meter.cpu_s().items():
        arm.cpu_s[name] = arm.cpu_s.get(name, 0.0) + seconds - wall_s * idle.get(name, 0.0)
    arm.rates.append(count / wall_s)
    arm.answers += answers


def prompt_of(words: int) -> str:
    """A prompt of so many words, which are tokens of the simulator."""
    return " ".join(["word"] * words)


async def load(
    new: Callable[[], Connection], width: int, count: int, *, words: int = _WORDS, tokens: int = _TOKENS
) -> list[Answer]:
    """`count` requests by `width` clients, each with one connection and one request at a time.

    words: of the prompt. tokens: of the answer.
    """
    answers: list[Answer] = []
    left = iter(range(count))
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt_of(words)}],
        "max_tokens": tokens,
        "ignore_eos": True,
    }

    async def one_client() -> None:
        async with new() as connection:
            for _ in left:
                answers.append(await connection.stream(body))

    await asyncio.gather(*(one_client() for _ in range(width)))
    return answers


def _row(width: int, direct: Arm, behind: Arm, what: str, way: str = GATEWAY) -> Row:
    ask = Arm.first if what == "first" else Arm.whole
    row: dict[str, Cell] = {"concurrency": width}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        row[f"direct {name}"] = round(ask(direct, share), 2)
        row[f"{way} {name}"] = round(ask(behind, share), 2)
        row[f"added {name}"] = round(ask(behind, share) - ask(direct, share), 2)
    return row


def _result(arms: Mapping[tuple[str, str, int], Arm], rounds: int, idle: Mapping[str, float]) -> Result:
    def pair(site: str, width: int, way: str = GATEWAY) -> tuple[Arm, Arm]:
        return arms[site, DIRECT, width], arms[site, way, width]

    def rows(site: str, what: str, way: str = GATEWAY) -> list[Row]:
        return [_row(width, *pair(site, width, way), what, way) for width in CONCURRENCIES]

    def rates(site: str) -> list[Row]:
        return [
            {
                "concurrency": width,
                "requests": len(gateway.answers),
                "direct, requests/s": round(median(direct.rates)),
                "gateway, requests/s": round(median(gateway.rates)),
                **(
                    {"LiteLLM, requests/s": round(median(other.rates))}
                    if (other := arms.get((site, LITELLM, width)))
                    else {}
                ),
                **{f"{name}, CPU ms a request": _cpu_ms(gateway, name) for name in gateway.cpu_s},
            }
            for width in CONCURRENCIES
            for direct, gateway in [pair(site, width)]
        ]

    def on_the_way(site: str, width: int) -> float:
        gateway = arms[site, GATEWAY, width]
        return sum(
            _cpu_ms(gateway, name)
            for name in gateway.cpu_s
            if name not in (gateway_meter.CLIENT, gateway_meter.REPLICA)
        )

    alone, most = CONCURRENCIES[0], CONCURRENCIES[-1]
    added = {site: float(str(rows(site, "first")[0]["added p50"])) for site in SITES}
    with_litellm = rows(EVERYTHING, "first", LITELLM)
    rate, litellm_rate = (median(arms[EVERYTHING, way, most].rates) for way in (GATEWAY, LITELLM))
    return Result(
        benchmark="gateway_latency",
        question="What do the gateway's parts add to a request, against a direct call to the replica?",
        conditions={
            "model": "one simulator without delays of its own: it streams its tokens as fast as it can",
            "request": f"{_WORDS} words, {_TOKENS} tokens streamed, connections kept alive",
            "load": "closed loop: each client sends its next request when the last one has ended",
            "rounds": f"{rounds}, of all ways in turn, "
            f"at least {_LEAST_REQUESTS} requests a round and way; percentiles over all rounds",
            "sites": f"{KEYS}: Envoy compares keys, no limits. {EVERYTHING}: a gatekeeper reads each body, and each "
            "tenant has every limit",
            "LiteLLM": f"{litellm_proxy.VERSION} beside the second, {litellm_proxy.WORKERS} workers, no database",
            "cpu_time": "beyond what the same processes use when idle: "
            + ", ".join(f"{name} {100 * share:.0f} % of a core" for name, share in idle.items()),
            "cores_shared_by": f"client, all parts of the gateway, replica and the lab's control plane share "
            f"{os.cpu_count()} cores, so from concurrency 8 on the figures are mostly waiting for a core",
        },
        tables=[
            *(Table(title=f"Time to first token, ms, {site}", rows=rows(site, "first")) for site in SITES),
            Table(title="Time to first token, ms, behind LiteLLM's proxy", rows=with_litellm),
            *(Table(title=f"Whole request, ms, {site}", rows=rows(site, "whole")) for site in SITES),
            *(Table(title=f"Requests/s, and CPU time by process, {site}", rows=rates(site)) for site in SITES),
        ],
        findings=[
            f"At one request at a time the gateway adds {added[KEYS]} ms to the first token (p50) with {KEYS}, and "
            f"{added[EVERYTHING]} ms with {EVERYTHING}: {added[EVERYTHING] - added[KEYS]:.1f} ms more.",
            f"With {most} requests at a time, one costs {on_the_way(KEYS, most):.2f} ms of CPU on the way with {KEYS}, "
            f"and {on_the_way(EVERYTHING, most):.2f} with {EVERYTHING}: "
            f"{on_the_way(EVERYTHING, most) / on_the_way(KEYS, most):.2f} times as much; one at a time "
            f"{on_the_way(EVERYTHING, alone) / on_the_way(KEYS, alone):.2f} times.",
            f"With {most} at a time the gateway with {EVERYTHING} carries {rate / litellm_rate:.1f} times as many "
            f"requests as LiteLLM's proxy, which adds {with_litellm[0]['added p50']} ms to the first token (p50) of "
            "one at a time.",
        ],
    )


def _cpu_ms(arm: Arm, name: str) -> float:
    return round(1000 * arm.cpu_s[name] / len(arm.answers), 2)
