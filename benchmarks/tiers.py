"""A spike of jobs beside chats, and a greedy tenant beside nine small ones: by arrival, with tiers, with limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import click

from benchmarks import models
from benchmarks.arithmetic import fairness, percentile
from benchmarks.models import Bench
from benchmarks.report import Cell, Result, Table, note
from lab.errors import LabError
from lab.paths import Lab

HELP = "a spike of jobs beside chats, one greedy tenant beside nine small ones: without tiers, with them, with limits"
PLAIN, QUEUES, PAGES = "bench-plain", "bench-queues", "bench-pages"
_REPLICAS, _SLOTS, _HELD = 2, 8, 24
_TOKENS, _GAP_MS = 40, 50
# As the proof of the reference site has it for a prompt of qwen3-32b, with its way and the steps that it shares.
_FIRST_MS = 130
_CHATS, _JOBS, _SPIKE = 3.0, 0.6, 20
_SPIKE_S = (5.0, 25.0)
_SMALL = tuple(f"small-{number}" for number in range(1, 10))
# Each small one asks for more than an equal part of what the replicas serve, too.
_GREEDY_RATE, _SMALL_RATE = 10.0, 1.0
# Of the room that the pages' model has, for jobs; and the requests at once of each tenant with a limit.
_JOBS_BELOW, _AT_ONCE = 0.6, 2
_CHATTING = {"tier": "interactive"}
TENANTS: dict[str, dict[str, Any]] = {
    "chats": _CHATTING,
    "jobs": {"tier": "batch"},
    "plain-chats": {},
    "plain-jobs": {},
    **dict.fromkeys(("greedy", *_SMALL), _CHATTING),
    **{f"limited-{name}": _CHATTING | {"limits": {"parallel_requests": _AT_ONCE}} for name in ("greedy", *_SMALL)},
}
# Of `_ask`'s requests: a token for 4 bytes of the body, as the gatekeeper estimates it, and the answer.
_LOAD = {
    "requests_per_s": 1,
    "prompt_tokens": {"p50": 45, "p95": 46},
    "answer_tokens": {"p50": _TOKENS, "p95": _TOKENS + 1},
}
_KEY = "one"
PARAMETERS = (
    click.Option(["--tiers-seconds"], type=float, default=30.0, show_default=True, help="tiers: length of each run"),
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request and what became of it; no times of one that was refused."""

    tenant: str
    first_s: float | None = None
    gap_s: float = 0.0
    tokens: int = 0


def _with_tenants(site: dict[str, Any]) -> None:
    site["callers"] = {"decided_by": "gatekeeper"}
    site["tiers"]["batch"]["admitted_below"] = _JOBS_BELOW
    site["tenants"] |= {name: {"models": [], **body, "keys": {_KEY: {}}} for name, body in TENANTS.items()}


def run(lab: Lab, *, tiers_seconds: float) -> Result:
    """Raises LabError when the platform does not come up."""
    overrides = {
        "max_num_seqs": {"value": _SLOTS, "reason": "so few that a benchmark fills them"},
        "max_num_queued_reqs": {"value": _HELD, "reason": "so few that a benchmark fills them"},
    }
    bodies = {
        name: {**models.simulator(replicas=_REPLICAS), "overrides": overrides, "load": _LOAD}
        for name in (PLAIN, QUEUES, PAGES)
    }
    bodies[QUEUES]["pool"] = {**bodies[QUEUES]["pool"], "queues": True}
    bodies[PAGES]["pool"] = {**bodies[PAGES]["pool"], "admission": "pages"}
    with models.served(lab, bodies, _with_tenants) as bench:
        for name in bodies:
            pace = {"--inter-token-latency": f"{_GAP_MS}ms", "--prefill-overhead": f"{_FIRST_MS}ms"}
            models.set_arguments(bench, name, {**pace, "--time-factor-under-load": "1.0"})
        spikes, greed = [], []
        for arm, model, prefix, spike in (
            ("no spike", PLAIN, "", 1),
            ("no tiers", PLAIN, "plain-", _SPIKE),
            ("tiers", PLAIN, "", _SPIKE),
            ("tiers in queues", QUEUES, "", _SPIKE),
            ("tiers by pages", PAGES, "", _SPIKE),
        ):
            rates = {f"{prefix}chats": (_CHATS, 1), f"{prefix}jobs": (_JOBS, spike)}
            answers = asyncio.run(_load(bench, model, rates, tiers_seconds))
            spikes += [_row(arm, name, [asked for asked in answers if asked.tenant == name]) for name in rates]
        for arm, model, prefix in (
            ("order of arrival", PLAIN, ""),
            ("turns", QUEUES, ""),
            ("requests at once", PAGES, "limited-"),
        ):
            greedy, small = f"{prefix}greedy", [f"{prefix}{name}" for name in _SMALL]
            shares = {greedy: (_GREEDY_RATE, 1), **dict.fromkeys(small, (_SMALL_RATE, 1))}
            answers = asyncio.run(_load(bench, model, shares, tiers_seconds))
            tokens = {name: sum(asked.tokens for asked in answers if asked.tenant == name) for name in shares}
            wanted = {name: _TOKENS * sum(asked.tenant == name for asked in answers) for name in shares}
            # Of what each would have of an equal part: who asks for less is not short of the rest.
            part = sum(tokens.values()) / len(shares)
            index = fairness([tokens[name] / min(wanted[name], part) for name in shares if wanted[name]])
            for name, group in (("greedy", [greedy]), ("nine small", small)):
                row = _row(arm, name, [asked for asked in answers if asked.tenant in group])
                greed.append({**row, "Jain's index of tokens served per token of a fair part": round(index, 3)})
    return _result(spikes, greed, tiers_seconds)


async def _load(bench: Bench, model: str, rates: Mapping[str, tuple[float, float]], seconds: float) -> list[Asked]:
    """Requests at random times, whatever became of those before. rates: per second, and times as many in the spike."""
    tasks = []
    for tenant, (rate, spike) in rates.items():
        random, at_s = Random(f"{tenant} times"), 0.0  # noqa: S311 - a workload, not a secret
        while True:
            inside = _SPIKE_S[0] <= at_s < _SPIKE_S[1]
            at_s += random.expovariate(rate * (spike if inside else 1))
            if at_s >= seconds:
                break
            tasks.append(asyncio.create_task(_ask(bench, model, tenant, at_s)))
    return await asyncio.gather(*tasks)


async def _ask(bench: Bench, model: str, tenant: str, at_s: float) -> Asked:
    await asyncio.sleep(at_s)
    content = f"{tenant} at {at_s}"
    body = {"model": model, "max_tokens": _TOKENS, "ignore_eos": True}
    async with bench.connection(f"{tenant}.{_KEY}") as connection:
        try:
            answer = await connection.stream({**body, "messages": [{"role": "user", "content": content}]})
        except LabError as error:
            if not str(error).startswith(("the answer was 429", "the answer was 503")):
                raise
            return Asked(tenant=tenant)
    gap_s = (answer.whole_s - answer.first_token_s) / max(1, answer.pieces - 1)
    return Asked(tenant=tenant, first_s=answer.first_token_s, gap_s=gap_s, tokens=_TOKENS)


def _row(arm: str, who: str, answers: Sequence[Asked]) -> dict[str, Cell]:
    served = [asked for asked in answers if asked.first_s is not None]
    row: dict[str, Cell] = {"arm": arm, "requests of": who.removeprefix("plain-"), "asked": len(answers)}
    row["refused, %"] = round(100 * (1 - len(served) / len(answers)), 1)
    for share in (0.5, 0.95, 0.99):
        times = [asked.first_s for asked in served if asked.first_s is not None]
        row[f"TTFT p{100 * share:.0f}, ms"] = round(1000 * percentile(times, share)) if times else None
    for share in (0.5, 0.95, 0.99):
        gaps = [asked.gap_s for asked in served]
        row[f"ITL p{100 * share:.0f}, ms"] = round(1000 * percentile(gaps, share)) if gaps else None
    note(str(row))
    return row


def _result(spikes: Sequence[dict[str, Cell]], greed: Sequence[dict[str, Cell]], seconds: float) -> Result:
    slots, answer_s = _REPLICAS * _SLOTS, (_FIRST_MS + _TOKENS * _GAP_MS) / 1000
    calm, plain, tiers, queues, pages = spikes[::2]
    _, _, jobs, waiting, paged = spikes[1::2]
    arrival, turns, limited = greed[1::2]
    return Result(
        benchmark="tiers",
        question="What do tiers do for chats while jobs come in a spike, and turns or limits for small tenants beside "
        "a greedy one; and what do queues in the picker and admission by pages add?",
        conditions={
            "model": f"{_REPLICAS} simulated replicas of {_SLOTS} requests at once and {_HELD - _SLOTS} that wait, an "
            f"answer of {_TOKENS} tokens in {answer_s:.1f} s, the first after {_FIRST_MS} ms: {slots / answer_s:.1f} "
            "requests/s",
            "spike": f"{_CHATS:g} chats/s beside {_JOBS:g} jobs/s, {_SPIKE} times as many jobs from second "
            f"{_SPIKE_S[0]:g} to {_SPIKE_S[1]:g}",
            "greed": f"one tenant with {_GREEDY_RATE:g} requests/s beside nine with {_SMALL_RATE:g}, of one tier",
            "length": f"{seconds:g} s of requests at random times",
            "ITL": "mean gap of each answer",
        },
        tables=[
            Table(title="A spike of jobs", rows=spikes),
            Table(title="One greedy tenant beside nine small ones", rows=greed),
        ],
        findings=[
            f"Chats' TTFT p95 is {calm['TTFT p95, ms']} ms without a spike. In one it is {plain['TTFT p95, ms']} ms "
            f"without tiers, {tiers['TTFT p95, ms']} with tiers, {queues['TTFT p95, ms']} with queues and "
            f"{pages['TTFT p95, ms']} where jobs are admitted below {_JOBS_BELOW:.0%} of the room.",
            f"Chats are refused in {plain['refused, %']} % without tiers, {tiers['refused, %']} % with tiers, "
            f"{queues['refused, %']} % with queues and {pages['refused, %']} % by pages.",
            f"Jobs are refused in {jobs['refused, %']} % with tiers, {waiting['refused, %']} % with queues and "
            f"{paged['refused, %']} % by pages.",
            f"The small tenants' TTFT p95 is {arrival['TTFT p95, ms']} ms in order of arrival, "
            f"{turns['TTFT p95, ms']} ms by turns and {limited['TTFT p95, ms']} ms where each has {_AT_ONCE} requests "
            "at once.",
        ],
    )
