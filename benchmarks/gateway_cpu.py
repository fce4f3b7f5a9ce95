"""CPU time at the gateway of a request as such, of its prompt, and of its answer: what its proxies are sized by."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import click

from benchmarks import gateway_latency, gateway_meter, models
from benchmarks.gateway_latency import EVERYTHING, INSTANT, KEYS, MODEL, SITES, prompt_of
from benchmarks.report import Result, Row, Table, note
from lab.paths import Lab

HELP = "CPU time at the gateway of a request, of its prompt and of its answer, with keys alone and with every feature"
_WIDTH = 16
_SECONDS_BETWEEN_TOKENS = 0.005
# Medians of a day of conversations at Azure (Splitwise, arXiv 2311.18677, table 2).
_PROMPT_TOKENS, _ANSWER_TOKENS = 1020, 129
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class Load:
    """Requests that are all alike."""

    words: int
    tokens: int
    count: int
    """Of a round."""

    @property
    def kib(self) -> float:
        """Of a prompt."""
        return len(prompt_of(self.words)) / 1024


# One token, as of several that come at once some are one event.
SHORT = Load(words=100, tokens=1, count=400)
# Each differs from the short one in one thing.
LONG_PROMPT = Load(words=8_100, tokens=1, count=200)
LONG_ANSWER = Load(words=100, tokens=129, count=120)
PARAMETERS = (
    click.Option(["--cpu-rounds"], type=int, default=4, show_default=True, help="gateway_cpu: rounds of each load"),
)

Costs = dict[str, dict[Load, float]]
"""CPU ms of one request, by program and load."""


def run(lab: Lab, *, cpu_rounds: int) -> Result:
    """Raises LabError when the platform does not come up or a request fails."""
    by_site = dict[str, Costs]()
    for site, edit in SITES.items():
        with models.served(lab, {MODEL: models.simulator(replicas=1)}, edit) as bench:
            paced = INSTANT | {"--inter-token-latency": f"{1000 * _SECONDS_BETWEEN_TOKENS:.0f}ms"}
            costs: Costs = {}
            for arguments, loads in ((INSTANT, (SHORT, LONG_PROMPT)), (paced, (LONG_ANSWER,))):
                models.set_arguments(bench, MODEL, arguments)
                _measure(bench, loads, cpu_rounds, costs)
            by_site[site] = costs
            note(f"{site}: {_rows(costs)}")
    return _result(by_site, cpu_rounds)


def _measure(bench: models.Bench, loads: tuple[Load, ...], rounds: int, costs: Costs) -> None:
    idle = gateway_meter.idle(bench.lab)
    for number in range(rounds + 1):
        for load in loads:
            meter, started = gateway_meter.Meter(bench.lab), time.perf_counter()
            # The first round opens connections.
            count = 2 * _WIDTH if number == 0 else load.count
            asyncio.run(gateway_latency.load(bench.connection, _WIDTH, count, words=load.words, tokens=load.tokens))
            wall_s = time.perf_counter() - started
            for name, seconds in meter.cpu_s().items() if number else ():
                used = 1000 * (seconds - wall_s * idle.get(name, 0.0)) / (count * rounds)
                costs.setdefault(name, {}).setdefault(load, 0.0)
                costs[name][load] += used


def parts_of(costs: Mapping[Load, float]) -> tuple[float, float, float]:
    """CPU ms of one program: of a request without prompt and answer, of a KiB of prompt, of a token of an answer."""
    kib = max(0.0, costs[LONG_PROMPT] - costs[SHORT]) / (LONG_PROMPT.kib - SHORT.kib)
    token = max(0.0, costs[LONG_ANSWER] - costs[SHORT]) / (LONG_ANSWER.tokens - SHORT.tokens)
    return max(0.0, costs[SHORT] - kib * SHORT.kib - token * SHORT.tokens), kib, token


def _rows(costs: Costs) -> list[Row]:
    ends = (gateway_meter.CLIENT, gateway_meter.REPLICA)
    parts = {name: parts_of(of) for name, of in sorted(costs.items()) if name not in ends}
    parts["all"] = tuple(sum(values) for values in zip(*parts.values(), strict=True))
    return [
        {
            "part": name,
            "a request, ms": round(request, 2),
            "a KiB of its prompt, ms": round(kib, 4),
            "a token of its answer, ms": round(token, 4),
        }
        for name, (request, kib, token) in parts.items()
    ]


def _usual(rows: list[Row]) -> float:
    """CPU ms of a usual request."""
    request, kib, token = (float(str(value)) for name, value in rows[-1].items() if name != "part")
    return request + kib * _PROMPT_TOKENS * _BYTES_PER_TOKEN / 1024 + token * _ANSWER_TOKENS


def _result(by_site: Mapping[str, Costs], rounds: int) -> Result:
    rows = {site: _rows(costs) for site, costs in by_site.items()}
    usual = {site: _usual(of) for site, of in rows.items()}
    return Result(
        benchmark="gateway_cpu",
        question="What CPU time does a request cost the gateway, and what do its prompt and its answer add?",
        conditions={
            "model": f"one simulator; long answers have a token each {1000 * _SECONDS_BETWEEN_TOKENS:.0f} ms",
            "load": f"{_WIDTH} clients in a closed loop; {rounds} rounds of {SHORT.count} requests of {SHORT.words} "
            f"words and one token, {LONG_PROMPT.count} of {LONG_PROMPT.words:,} words, and "
            f"{LONG_ANSWER.count} of {LONG_ANSWER.tokens} tokens",
            "sites": f"as in gateway_latency: {', '.join(SITES)}",
            "cpu_time": "beyond what the same processes use when idle",
            "usual request": f"{_PROMPT_TOKENS:,} tokens of prompt, {_BYTES_PER_TOKEN} bytes each, and "
            f"{_ANSWER_TOKENS} of answer: medians of conversations (arXiv 2311.18677)",
            "cores_shared_by": f"everything shares {os.cpu_count()} cores",
        },
        tables=[Table(title=f"CPU time by part, {site}", rows=of) for site, of in rows.items()],
        findings=[
            f"A usual request costs {usual[KEYS]:.1f} ms of CPU at the gateway with {KEYS}, and "
            f"{usual[EVERYTHING]:.1f} with {EVERYTHING}: {usual[EVERYTHING] / usual[KEYS]:.2f} times as much.",
            f"A token of its answer costs {rows[EVERYTHING][-1]['a token of its answer, ms']} ms, of a thousand tokens "
            f"a second {float(str(rows[EVERYTHING][-1]['a token of its answer, ms'])):.2f} cores.",
        ],
    )
