"""What faults take of the ledger's rows while requests go on, each held against the bound that is computed for it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import secrets
import signal
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from kubernetes import client

from benchmarks import ledger_rows, processes
from benchmarks.arithmetic import percentile
from benchmarks.models import Bench
from benchmarks.report import Row
from components.gateway.gateway import proxy_labels
from components.gateway.gateway_controllers import ENVOY_NAMESPACE
from floor.headers import PROMPT_ID_HEADER
from floor.namespaces import GATEWAY
from lab.cluster import api, operator_database
from lab.cluster.parts import metadata_of, present
from lab.errors import LabError
from lab.site import supervisor
from services.ledger import variables

AT_ONCE = 16
_AWAY_S, _BEFORE_S, _AFTER_S = 20.0, 10.0, 10.0
_PATIENCE_S = 120.0
_SETTLED_S = 10.0
_AGAIN_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is done while requests go on."""

    what: str
    act: Callable[[Bench], None]
    loses: bool = False
    """Whether rows may be lost: those that Envoy has not written."""


@dataclass
class Load:
    """Requests of one fault."""

    whole: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Prompt id -> tokens that the answer reported, of requests that ended whole."""
    ended: list[float] = field(default_factory=list)
    """When each of them did, in order."""
    broke: int = 0
    began: list[tuple[float, float]] = field(default_factory=list)
    """When each that ended whole began, and how many seconds it took."""
    fault: tuple[float, float] = (math.inf, math.inf)
    """From when until when it lasts."""

    def times(self, *, in_fault: bool) -> str:
        """p50 and p99 of requests that began while it lasts, or before it, in ms."""
        first, last = self.fault
        took = [1000 * s for at, s in self.began if (first <= at < last if in_fault else at < first)]
        return ", ".join(f"{percentile(took, share):.0f}" for share in (0.5, 0.99)) if took else "-"

    @property
    def unwritten(self) -> int:
        """The most that ended within the time for which Envoy keeps lines."""
        return max(
            (bisect_right(self.ended, at + variables.FLUSH_S) - first for first, at in enumerate(self.ended)), default=0
        )


def measure(bench: Bench, fault: Fault, body: Mapping[str, Any], count: int) -> Row:
    """Rows and tokens of at least so many requests around a fault. `over` has what exceeds its bound, or nothing.

    Raises LabError when rows do not arrive.
    """
    run_id = f"fault-{secrets.token_hex(6)}"
    load = asyncio.run(_load(bench, body, run_id, count, fault))
    rows = _arrived(bench, run_id, load, wait_for_all=not fault.loses)
    lost = [prompt for prompt in load.whole if prompt not in rows]
    wrong = sum(rows[prompt] != tokens for prompt, tokens in load.whole.items() if prompt in rows)
    # A line is written when its request is over; of those that were open no client has an answer.
    bound = load.unwritten if fault.loses else 0
    return {
        "fault": fault.what,
        "requests": len(load.whole) + load.broke,
        "ended whole": len(load.whole),
        "broke": load.broke,
        "rows lost": len(lost),
        "bound of rows": bound,
        "tokens lost": sum(sum(load.whole[prompt]) for prompt in lost),
        "bound of tokens": bound * max(map(sum, load.whole.values()), default=0),
        "rows with other tokens": wrong,
        "doubles": ledger_rows.doubles(bench.lab, run_id),
        "before: p50, p99, ms": load.times(in_fault=False),
        "in the fault": load.times(in_fault=True),
    }


def exceeded(row: Row) -> bool:
    """Whether it is beyond what is computed for it, or no request ended whole by which to know."""
    lost, bound = int(row["rows lost"] or 0), int(row["bound of rows"] or 0)
    return lost > bound or any(row[name] for name in ("rows with other tokens", "doubles")) or not row["ended whole"]


async def _load(bench: Bench, body: Mapping[str, Any], run_id: str, count: int, fault: Fault) -> Load:
    """Streams and whole answers by turns, until the fault is over and so many requests are."""
    load, number = Load(), 0
    base = bench.front.endpoint.removesuffix("/v1")

    async def between() -> None:
        # Requests are under way by then, and after it they meet what has started again.
        await asyncio.sleep(_BEFORE_S)
        began = time.monotonic()
        load.fault = (began, math.inf)
        await asyncio.to_thread(fault.act, bench)
        load.fault = (began, time.monotonic())
        await asyncio.sleep(_AFTER_S)

    acting = asyncio.create_task(between())

    async def one_client() -> None:
        nonlocal number
        async with httpx.AsyncClient(
            base_url=base, headers=bench.headers, verify=bench.front.trust, trust_env=False, timeout=_PATIENCE_S
        ) as asking:
            while not acting.done() or number < count:
                number += 1
                prompt = f"{run_id}-{number}"
                began = time.monotonic()
                streamed = {"stream": True, "stream_options": {"include_usage": True}} if number % 2 else {}
                try:
                    answer = await asking.post(
                        "/v1/chat/completions", json={**body, **streamed}, headers={PROMPT_ID_HEADER: prompt}
                    )
                    load.whole[prompt] = _reported(answer)
                    load.ended.append(time.monotonic())
                    load.began.append((began, load.ended[-1] - began))
                except (httpx.HTTPError, LookupError, ValueError):
                    load.broke += 1
                    # While nothing answers.
                    await asyncio.sleep(_AGAIN_S)

    await asyncio.gather(*(one_client() for _ in range(AT_ONCE)))
    await acting
    return load


def _reported(answer: httpx.Response) -> tuple[int, int]:
    """Tokens of prompt and answer. Raises LookupError or ValueError for one that is not whole."""
    answer.raise_for_status()
    events = [line.removeprefix("data:") for line in answer.text.splitlines() if line.startswith("data: {")]
    usage = json.loads(events[-1] if events else answer.text)["usage"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def _arrived(bench: Bench, run_id: str, load: Load, *, wait_for_all: bool) -> dict[str, tuple[int, int]]:
    """Prompt id -> tokens of its row; where some may be lost, once no more arrive. Raises LabError."""
    deadline, rows, settled = time.monotonic() + _PATIENCE_S, dict[str, tuple[int, int]](), time.monotonic()
    while time.monotonic() < deadline:
        now = ledger_rows.tokens(bench.lab, run_id)
        if load.whole.keys() <= now.keys():
            return now
        if len(now) > len(rows):
            rows, settled = now, time.monotonic()
        elif not wait_for_all and time.monotonic() - settled > _SETTLED_S:
            return now
        # Rows arrive within seconds.
        time.sleep(1)
    if wait_for_all:
        return rows
    raise LabError(f"rows still arrive after {_PATIENCE_S:.0f} s", fix="python -m lab logs")


def _gateway_pods(bench: Bench) -> list[client.V1Pod]:
    selector = ",".join(f"{name}={value}" for name, value in proxy_labels(GATEWAY).items())
    pods: list[client.V1Pod] = bench.core().list_namespaced_pod(ENVOY_NAMESPACE, label_selector=selector).items
    return pods


def _delete_gateway(bench: Bench) -> None:
    """Until it has drained and is gone."""
    (old,) = (present(metadata_of(pod).name) for pod in _gateway_pods(bench))
    bench.core().delete_namespaced_pod(old, ENVOY_NAMESPACE)
    deadline = time.monotonic() + _PATIENCE_S
    while old in {metadata_of(pod).name for pod in _gateway_pods(bench)}:
        if time.monotonic() > deadline:
            raise LabError(f"{old} does not end within {_PATIENCE_S:.0f} s", fix="python -m lab logs")
        # It drains for as long as streams last.
        time.sleep(1)


def _ledger_away(bench: Bench) -> None:
    apps = client.AppsV1Api(api.connect(bench.lab))

    def scale(replicas: int) -> client.V1Deployment:
        patch = {"spec": {"replicas": replicas}}
        return apps.patch_namespaced_deployment(variables.SERVICE, GATEWAY, patch)

    scale(0)
    # The fault itself.
    time.sleep(_AWAY_S)
    scale(2)


def _database_away(bench: Bench) -> None:
    """It hangs for longer than a ledger waits, and then its processes die."""
    part = next(part for part in supervisor.components(bench.lab) if part.name == operator_database.COMPONENT)
    pid = present(part.pid())
    os.killpg(pid, signal.SIGSTOP)
    # The fault itself.
    time.sleep(_AWAY_S)
    os.killpg(pid, signal.SIGKILL)


def _kill_envoy(bench: Bench) -> None:
    """Its container starts again."""
    pids = processes.lab_programs(bench.lab).get("envoy", [])
    if not pids:
        raise LabError("no Envoy runs", fix="python -m lab status")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


FAULTS = (
    Fault(what="gateway pod deleted", act=_delete_gateway),
    Fault(what=f"both ledgers away for {_AWAY_S:.0f} s", act=_ledger_away),
    Fault(what=f"database hangs for {_AWAY_S:.0f} s, and dies", act=_database_away),
    Fault(what="Envoy killed (SIGKILL)", act=_kill_envoy, loses=True),
)
