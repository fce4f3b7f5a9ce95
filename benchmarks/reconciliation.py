"""What the ledger bills against what the engine counted: each API, whole and streamed, left by clients and failed; and
what faults take of it, held against its bound.
"""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import httpx

from benchmarks import ledger_faults, ledger_rows, models
from benchmarks.models import Bench
from benchmarks.report import Cell, Result, Row, Table, note
from floor.headers import PROMPT_ID_HEADER
from lab.cluster import operator_database
from lab.errors import LabError
from lab.paths import Lab

HELP = "tokens that the ledger bills against those that the engine counted, for each API and each end of an answer"
MODEL = "bench-counted"
_AT_ONCE = 16
_TTFT_MS, _ITL_MS = 20, 10
_TOKENS = 24
_READ = 6
_PATIENCE_S = 120.0
_COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
_PROMPT_TOKENS = re.compile(r'"prompt_tokens":\s*(\d+)')
# Slow enough that a client leaves in the middle of an answer.
_PACE = {
    "--latency-calculator": "constant",
    "--time-to-first-token": f"{_TTFT_MS}ms",
    "--inter-token-latency": f"{_ITL_MS}ms",
}
_FAILING = {"--failure-injection-rate": "100", "--failure-types": "server_error"}
PARAMETERS = (
    click.Option(
        ["--requests-of-each"], type=int, default=200, show_default=True, help="reconciliation: requests of each kind"
    ),
    click.Option(
        ["--requests-of-faults"],
        type=int,
        default=500,
        show_default=True,
        help="reconciliation: requests around each fault, at least",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Requests of one API that end in one way."""

    what: str
    path: str
    body: Mapping[str, Any]
    streamed: bool = False
    status: int = 200
    left: bool = False
    """Whether clients leave in the middle of the answer."""
    by_clients: bool = False
    """Whether clients count, as the simulator does not: not what it embeds, and not what it did not end."""
    arguments: Mapping[str, str] = field(default_factory=lambda: _PACE)
    """Of the engine."""


_SAID = {"messages": [{"role": "user", "content": "hello " * 40}]}
_CHAT = {"model": MODEL, **_SAID, "max_tokens": _TOKENS, "ignore_eos": True}
_MESSAGE = {"model": MODEL, **_SAID, "max_tokens": _TOKENS}
_COMPLETION = {"model": MODEL, "prompt": "hello " * 40, "max_tokens": _TOKENS, "ignore_eos": True}
_ANSWER = {"model": MODEL, "input": "hello " * 40, "max_output_tokens": _TOKENS}
_ASKS = {"stream_options": {"include_usage": True}}
_CHATS, _COMPLETIONS = "/v1/chat/completions", "/v1/completions"
KINDS = (
    Kind(what="chat", path=_CHATS, body=_CHAT),
    Kind(what="chat, streamed", path=_CHATS, body=_CHAT, streamed=True),
    Kind(what="chat, streamed with usage", path=_CHATS, body=_CHAT | _ASKS, streamed=True),
    Kind(what="completion", path=_COMPLETIONS, body=_COMPLETION),
    Kind(what="completion, streamed", path=_COMPLETIONS, body=_COMPLETION, streamed=True),
    Kind(what="completion, streamed with usage", path=_COMPLETIONS, body=_COMPLETION | _ASKS, streamed=True),
    Kind(what="response", path="/v1/responses", body=_ANSWER),
    Kind(what="response, streamed", path="/v1/responses", body=_ANSWER, streamed=True),
    Kind(what="message", path="/anthropic/v1/messages", body=_MESSAGE),
    Kind(what="message, streamed", path="/anthropic/v1/messages", body=_MESSAGE, streamed=True),
    Kind(
        what="embedding",
        path="/v1/embeddings",
        body={"model": MODEL, "input": ["hello", "and goodbye"]},
        by_clients=True,
    ),
    Kind(
        what="chat that its client leaves",
        path=_CHATS,
        body=_CHAT | {"max_tokens": 400},
        streamed=True,
        left=True,
        by_clients=True,
    ),
    Kind(what="chat that fails in the engine", path=_CHATS, body=_CHAT, status=503, arguments=_PACE | _FAILING),
)


def metered(site: dict[str, Any]) -> None:
    """A gatekeeper and a ledger; prices are not looked at. Messages need caches that tenants share."""
    site["callers"] = {"decided_by": "gatekeeper"}
    for tenant in site["tenants"].values():
        tenant["prefix_cache"] = "shared"
    site["usage"] = {
        "database_secret": operator_database.USAGE,
        "prices": [{"since": "2026-01-01", "models": {MODEL: {"input": 1, "output": 1}}}],
    }


def run(lab: Lab, *, requests_of_each: int, requests_of_faults: int) -> Result:
    """Raises LabError when the platform does not come up, a request has no row in time, or a bound is exceeded."""
    models.give_databases(lab, operator_database.USAGE)
    rows: list[Row] = []
    with models.served(lab, {MODEL: models.simulator(replicas=1)}, metered) as bench:
        arguments: Mapping[str, str] = {}
        for kind in KINDS:
            if kind.arguments != arguments:
                models.set_arguments(bench, MODEL, kind.arguments)
                arguments = kind.arguments
            rows.append(_measure(bench, kind, requests_of_each))
            note(str(rows[-1]))
        models.set_arguments(bench, MODEL, {**_PACE, **_FAILING, "--failure-injection-rate": "0"})
        faults = []
        for fault in ledger_faults.FAULTS:
            faults.append(ledger_faults.measure(bench, fault, _CHAT, requests_of_faults))
            note(str(faults[-1]))
    whole = [row for row, kind in zip(rows, KINDS, strict=True) if not kind.left]
    gap = sum(abs(int(row[f"gap, {side}"] or 0)) for row in whole for side in ("input", "output"))
    past = max(int(row["most past its bound"] or 0) for row in rows)
    beyond = [str(row["fault"]) for row in faults if ledger_faults.exceeded(row)]
    if gap or past > 0 or beyond:
        text = f"a gap of {gap} tokens; {past} tokens past an abort's bound; {', '.join(beyond) or 'no fault'} past its"
        raise LabError(f"bounds are exceeded: {text}", fix="see the rows of the runs above in the ledger's database")
    requests = sum(int(row["requests"] or 0) for row in (*rows, *faults))
    return Result(
        benchmark="reconciliation",
        question="Does the ledger bill what the engine counted?",
        conditions={
            "model": "one simulator; its own counters are the engine's, but for what it does not count: embeddings, as "
            "answers report them, and what clients have read when they leave",
            "requests": f"{requests_of_each} of each kind, {_AT_ONCE} at once",
            "gap": "the ledger's tokens less the engine's",
            "bound of an abort": f"a token for each {_ITL_MS} ms of its request's time at the gateway after the last "
            "event that its client read",
            "bound of a killed Envoy": "requests that ended within the second for which Envoy keeps lines; of those "
            "that were open no client has an answer",
        },
        tables=[
            Table(title="Tokens by kind of request", rows=rows),
            Table(title=f"Faults under load, {ledger_faults.AT_ONCE} requests at once", rows=faults),
        ],
        findings=[
            f"Of requests that their clients did not leave, the gap is {gap} tokens.",
            f"No bound was exceeded over {requests:,} requests.",
        ],
    )


def _measure(bench: Bench, kind: Kind, count: int) -> Row:
    run_id = f"rec-{secrets.token_hex(6)}"
    (engine,) = bench.replicas(MODEL)
    before = models.counters(engine, _COUNTERS)
    read = asyncio.run(_load(bench, kind, run_id, count))
    billed = _billed(bench.lab, run_id, count)
    past = [
        tokens_past_the_bound(row, _READ, ttft_ms=_TTFT_MS, itl_ms=_ITL_MS)
        for row in (ledger_rows.rows_of(bench.lab, run_id) if kind.left else ())
    ]
    # An engine stops a request that its client has left within a step or two.
    time.sleep(2)
    after = models.counters(engine, _COUNTERS)
    counted: list[int | None] = [round(after[name] - before[name]) for name in _COUNTERS]
    if kind.by_clients:
        # Who leaves has not seen what its prompt was.
        counted = [None if kind.left else read[0], read[1]]
    row: dict[str, Cell] = {"kind": kind.what, "requests": count}
    for side, engines, ledgers in zip(("input", "output"), counted, billed, strict=True):
        gap = None if engines is None else ledgers - engines
        row |= {f"engine, {side}": engines, f"ledger, {side}": ledgers, f"gap, {side}": gap}
    return row | {"most past its bound": max(past, default=None)}


async def _load(bench: Bench, kind: Kind, run_id: str, count: int) -> list[int]:
    """Tokens of prompts as answers report them, and events of answers that clients have read. Raises LabError."""
    read = [0, 0]
    left = iter(range(count))
    base = bench.front.endpoint.removesuffix("/v1")

    async def one_client() -> None:
        async with httpx.AsyncClient(
            base_url=base, headers=bench.headers, verify=bench.front.trust, trust_env=False, timeout=_PATIENCE_S
        ) as client:
            for number in left:
                headers = {PROMPT_ID_HEADER: f"{run_id}-{number}"}
                body = {**kind.body, **({"stream": True} if kind.streamed else {})}
                async with client.stream("POST", kind.path, json=body, headers=headers) as answer:
                    if answer.status_code != kind.status:
                        text = (await answer.aread()).decode()
                        raise LabError(f"{kind.what}: {answer.status_code} {text}", fix="python -m lab logs")
                    events = 0
                    async for line in answer.aiter_lines():
                        events += line.startswith("data:")
                        read[0] += sum(map(int, _PROMPT_TOKENS.findall(line)))
                        if kind.left and events == _READ:
                            break
                    read[1] += events

    await asyncio.gather(*(one_client() for _ in range(_AT_ONCE)))
    return read


def _billed(lab: Lab, run_id: str, count: int) -> tuple[int, int]:
    """Tokens of input and output in the ledger, once each request has its row."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        rows, input_tokens, output_tokens = ledger_rows.sums(lab, run_id)
        if rows == count:
            return input_tokens, output_tokens
        # Rows arrive within seconds.
        time.sleep(1)
    raise LabError(f"{rows} of {count} requests have a row after {_PATIENCE_S:.0f} s", fix="python -m lab logs")


def tokens_past_the_bound(row: Mapping[str, float], read: int, *, ttft_ms: float, itl_ms: float) -> int:
    """Of a request that its client left after so many events: tokens of the row beyond those that the client read, and
    those of the abort's delay, one in each ITL. That delay is what is left of the request's time at the gateway after
    the last event that was read could leave the engine, which has these figures.
    """
    delay_ms = row["duration_ms"] - ttft_ms - (read - 1) * itl_ms
    return math.ceil(row["output_tokens"] - read - max(0.0, delay_ms) / itl_ms)
