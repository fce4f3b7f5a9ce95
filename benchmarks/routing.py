"""Prefix-aware picking, with one picker and with two, against round robin.

On conversations whose history grows and system prompts that they share.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import yaml
from kubernetes import client

from benchmarks import models
from benchmarks.arithmetic import median, percentile, spread
from benchmarks.client import Answer
from benchmarks.models import Bench
from benchmarks.report import Cell, Result, Row, Table, note
from components.specs.inference_pool import picker_name
from lab.cluster import api
from lab.errors import LabError
from lab.paths import Lab
from stacks.plan.models import MODELS_NAMESPACE

HELP = "prefix-aware picking, by one picker and by two, against round robin on multi-turn conversations"
AWARE, TWO, TURNS = "bench-prefix-aware", "bench-two-pickers", "bench-round-robin"
_ARMS = {AWARE: "prefix-aware", TWO: "prefix-aware, two pickers", TURNS: "round robin"}
PICKERS = {AWARE: 1, TWO: 2, TURNS: 1}
_REPLICAS = 3
_BLOCK_TOKENS = 16
_KV_BLOCKS = 2560
_PICK_HEADER = "test-epp-endpoint-selection"

# The picker takes the replica that the client names; the client names them in turn.
_NAMED_REPLICA = {
    "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": [
        {"type": "header-based-testing-filter"},
        {"type": "max-score-picker"},
        {"type": "single-profile-handler"},
    ],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [{"pluginRef": "header-based-testing-filter"}, {"pluginRef": "max-score-picker"}],
        }
    ],
}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Conversations that run in parallel. Lengths in words, which are tokens to the simulator."""

    conversations: int = 40
    turns: int = 8
    applications: int = 4
    """Each conversation belongs to one; its system prompt is the same for all of them."""
    system_words: int = 1000
    question_words: int = 250
    answer_tokens: int = 32
    pause_s: float = 1.0
    """Mean time that a user takes before the next question, and before the first."""

    @property
    def distinct_tokens(self) -> int:
        """What a cache must hold to never compute a token twice."""
        own = self.turns * (self.question_words + self.answer_tokens)
        return self.applications * self.system_words + self.conversations * own


@dataclass(frozen=True, kw_only=True)
class Round:
    """One arm's run of the workload."""

    arm: str
    number: int
    answers: Sequence[Answer]
    wall_s: float
    served: Sequence[float]
    """Requests by replica."""

    @property
    def cached_share(self) -> float:
        return sum(answer.cached_tokens for answer in self.answers) / sum(a.prompt_tokens for a in self.answers)

    def row(self) -> dict[str, Cell]:
        first = [answer.first_token_s * 1000 for answer in self.answers]
        computed = sum(answer.prompt_tokens - answer.cached_tokens for answer in self.answers)
        return {
            "picking": self.arm,
            "round": self.number,
            "TTFT p50, ms": round(percentile(first, 0.5), 1),
            "TTFT p95, ms": round(percentile(first, 0.95), 1),
            "cached tokens, %": round(100 * self.cached_share, 1),
            "tokens computed a request": round(computed / len(self.answers)),
            "requests/s": round(len(self.answers) / self.wall_s, 2),
            "busiest / idlest replica": round(spread(self.served), 2),
            "requests by replica": " ".join(f"{count:.0f}" for count in self.served),
        }


PARAMETERS = (
    click.Option(["--routing-rounds"], type=int, default=3, show_default=True, help="routing: rounds of each arm"),
)


def run(lab: Lab, *, routing_rounds: int) -> Result:
    """Raises LabError when the platform does not come up or a request fails."""
    work = Workload()
    # The same replicas for every arm; only the picking differs.
    bodies = {name: models.simulator(replicas=_REPLICAS, pickers=count) for name, count in PICKERS.items()}
    with models.served(lab, bodies) as bench:
        for name in _ARMS:
            models.set_arguments(bench, name, {"--kv-cache-size": str(_KV_BLOCKS)})
        _pick_by_name(bench, TURNS)
        rounds = []
        for number in range(1, routing_rounds + 1):
            for arm in _ARMS:
                rounds.append(asyncio.run(_round(bench, work, arm, number)))
                note(" ".join(f"{key}={value}" for key, value in rounds[-1].row().items()))
    return _result(work, rounds)


async def _round(bench: Bench, work: Workload, arm: str, number: int) -> Round:
    replicas = bench.replicas(arm)
    if len(replicas) != _REPLICAS:
        raise LabError(f"{arm} has {len(replicas)} replicas, not {_REPLICAS}", fix="python -m lab status")
    names = itertools.cycle([address.removeprefix("http://") for address in replicas]) if arm == TURNS else None
    before = [_succeeded(address) for address in replicas]
    started = time.monotonic()
    # The same conversations for both arms; other words in every round, so that no round finds the last one's cache.
    tasks = [_converse(bench, work, arm, number, who, names) for who in range(work.conversations)]
    answers = [answer for talk in await asyncio.gather(*tasks) for answer in talk]
    wall_s = time.monotonic() - started
    served = [_succeeded(address) - old for address, old in zip(replicas, before, strict=True)]
    return Round(arm=_ARMS[arm], number=number, answers=answers, wall_s=wall_s, served=served)


async def _converse(
    bench: Bench, work: Workload, model: str, number: int, who: int, names: Iterator[str] | None
) -> list[Answer]:
    application = who % work.applications
    messages = [{"role": "system", "content": _words(f"{number} system {application}", work.system_words)}]
    pauses = random.Random(f"{number} pauses {who}")  # noqa: S311 - a workload, not a secret
    answers = []
    async with bench.connection() as connection:
        for turn in range(work.turns):
            await asyncio.sleep(pauses.uniform(0, 2 * work.pause_s))
            messages.append({"role": "user", "content": _words(f"{number} {who} {turn}", work.question_words)})
            body = {"model": model, "messages": messages, "max_tokens": work.answer_tokens, "ignore_eos": True}
            answer = await connection.stream(body, {_PICK_HEADER: next(names)} if names else None)
            messages.append({"role": "assistant", "content": answer.text})
            answers.append(answer)
    return answers


def _words(seed: str, count: int) -> str:
    source = random.Random(seed)  # noqa: S311 - a workload, not a secret
    return " ".join(f"w{source.randrange(10**6)}" for _ in range(count))


def _succeeded(address: str) -> float:
    name = "vllm:request_success_total"
    return models.counters(address, (name,))[name]


def _pick_by_name(bench: Bench, model: str) -> None:
    """Give the model's picker the plain configuration and restart it; `up` leaves it alone while the model is there."""
    name = picker_name(model)
    connection = api.connect(bench.lab)
    text = yaml.safe_dump(_NAMED_REPLICA, sort_keys=False)
    client.CoreV1Api(connection).patch_namespaced_config_map(name, MODELS_NAMESPACE, {"data": {"config.yaml": text}})
    apps = client.AppsV1Api(connection)
    mark = {"spec": {"template": {"metadata": {"annotations": {"benchmarks/picking": "by-name"}}}}}
    models.wait_for(bench, name, apps.patch_namespaced_deployment(name, MODELS_NAMESPACE, mark))
    # The gateway's connection to the picker's address goes with the old one.
    asyncio.run(_first_answer(bench, model))


async def _first_answer(bench: Bench, model: str) -> None:
    header = {_PICK_HEADER: bench.replicas(model)[0].removeprefix("http://")}
    for attempt in range(20):
        try:
            async with bench.connection() as connection:
                await connection.stream({"model": model, "messages": [{"role": "user", "content": "?"}]}, header)
            return
        except LabError:
            if attempt == 19:
                raise
            await asyncio.sleep(1)


def _result(work: Workload, rounds: Sequence[Round]) -> Result:
    arms = {arm: [item for item in rounds if item.arm == arm] for arm in _ARMS.values()}
    summary = [_summary(arm, items) for arm, items in arms.items()]
    cache = _KV_BLOCKS * _BLOCK_TOKENS
    aware, two, turns = summary
    return Result(
        benchmark="routing",
        question="What does picking the replica that holds a request's prefix bring over taking replicas in turn, and "
        "what of it is left with two pickers, each of which knows the prefixes that it placed itself?",
        conditions={
            "workload": f"{work.conversations} conversations side by side, {work.turns} turns each, "
            f"{work.applications} shared system prompts of {work.system_words} tokens, questions of "
            f"{work.question_words}, answers of {work.answer_tokens}; 0 to {2 * work.pause_s:.0f} s before a question",
            "replicas": f"{_REPLICAS} simulators of Qwen3-32B on one H200 each, for each arm",
            "kv_cache": f"{_KV_BLOCKS} blocks of {_BLOCK_TOKENS} tokens a replica = {cache:,} tokens; the workload has "
            f"{work.distinct_tokens:,} distinct tokens, {work.distinct_tokens / cache:.1f} times one cache and "
            f"{work.distinct_tokens / cache / _REPLICAS:.1f} times all {_REPLICAS}",
            "round_robin": "the same gateway, route and picker program; its configuration takes the replica that a "
            "request names, and the client names them in turn",
            "cores_shared_by": "client, gateway, all pickers, all replicas and the lab's control plane",
            "order": "arms alternate; a round uses words that no round before it used",
        },
        tables=[
            Table(title="Medians of the rounds", rows=summary),
            Table(title="Every round", rows=[item.row() for item in rounds]),
        ],
        findings=[
            f"Prefix-aware picking finds {aware['cached tokens, %']} % of the prompt tokens cached, round robin "
            f"{turns['cached tokens, %']} %.",
            f"Time to first token: p50 {aware['TTFT p50, ms']} against {turns['TTFT p50, ms']} ms, p95 "
            f"{aware['TTFT p95, ms']} against {turns['TTFT p95, ms']} ms.",
            f"Two pickers find {two['cached tokens, %']} %, with TTFT p50 {two['TTFT p50, ms']} and p95 "
            f"{two['TTFT p95, ms']} ms.",
            f"The price is balance: the busiest replica gets {aware['busiest / idlest replica']} times the requests of "
            f"the idlest one, against {turns['busiest / idlest replica']}.",
        ],
    )


def _summary(arm: str, rounds: Sequence[Round]) -> Row:
    rows = [item.row() for item in rounds]
    figures = [key for key, value in rows[0].items() if isinstance(value, float | int) and key != "round"]
    middle = {key: round(median(float(row[key] or 0) for row in rows), 2) for key in figures}
    return {"picking": arm, "rounds": len(rows), **middle}
