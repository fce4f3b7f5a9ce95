"""The last full hour as gauges: tokens of its rows by revision, to hold against what the engines counted in it.

They are read from the database, not counted by this process: both ledgers have the same, also after a start, and rows
that come late are in them. Rows are of the hour in which their request began, an engine counts when it makes a token,
and an abandoned request has more tokens in its engine than in its row: how much that comes to at most is `bound`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from prometheus_client import Gauge

from services.database import Database
from services.ledger.tables import REQUESTS, REVISIONS, USAGE

HOUR_S = 3600
CLOSED_AFTER_S = 300
"""From the end of an hour until it is shown: shippers need seconds, and an answer that is under way some minutes."""
LOOK_EVERY_S = 60.0
EDGE_S = 60
"""By so much the engines' hour may be another than that of rows: Prometheus looks at a counter now and then."""
ABORT_S = 2.0
"""An engine stops within a step or two of its client's leaving; this is more than any step takes."""
_FAST_ITL_MS = 5.0
"""Where no answer of the hour has one."""
# Longer requests than this are not looked for at the hour's edges.
_LONGEST_S = 3600
# Rows of one statement: it has to answer in time on a site with a thousand requests per second.
_PIECE_S = 600
_KINDS = ("input", "output")

_TOKENS = Gauge(
    "inference_usage_hour_tokens",
    "Tokens of the rows whose requests began in the last full hour.",
    ["model", "revision", "kind"],
)
_BOUND = Gauge(
    "inference_usage_hour_bound_tokens",
    "By how many tokens the engines' count of that hour may differ: requests at its edges, and abandoned ones.",
    ["model", "revision", "kind"],
)
_START = Gauge("inference_usage_hour_start_timestamp_seconds", "Start of that hour. 0: none was read yet.")

# What others than the stable revision answered is among the sums of the model.
_SUMS = sa.text(
    f"""
    SELECT model, revision, sum(requests)::bigint AS requests, sum(input_tokens)::bigint AS input,
    sum(output_tokens)::bigint AS output FROM (
        SELECT model, model AS revision, requests, input_tokens, output_tokens FROM {USAGE.name} WHERE hour = :hour
        UNION ALL SELECT model, model, -requests, -input_tokens, -output_tokens FROM {REVISIONS.name} WHERE hour = :hour
        UNION ALL SELECT model, revision, requests, input_tokens, output_tokens FROM {REVISIONS.name} WHERE hour = :hour
    ) AS used GROUP BY 1, 2
    """  # noqa: S608 - names of tables
)
_ENDED = "started + coalesce(duration_ms, 0) * interval '1 millisecond'"
_ACROSS = " OR ".join(
    f"(started < {edge} + interval '{EDGE_S} s' AND {_ENDED} >= {edge} - interval '{EDGE_S} s')"
    for edge in ("CAST(:hour AS timestamptz)", f"CAST(:hour AS timestamptz) + interval '{HOUR_S} s'")
)
_IN_HOUR = f"started >= CAST(:hour AS timestamptz) AND started < CAST(:hour AS timestamptz) + interval '{HOUR_S} s'"
_LEFT = f"{_IN_HOUR} AND strpos(flags, 'DC') > 0 AND replica <> ''"
_PIECE = sa.text(
    f"""
    SELECT model, revision,
    coalesce(sum(input_tokens) FILTER (WHERE {_ACROSS}), 0) AS across_input,
    coalesce(sum(output_tokens) FILTER (WHERE {_ACROSS}), 0) AS across_output,
    count(*) FILTER (WHERE {_LEFT}) AS left_early,
    coalesce(sum(input_tokens) FILTER (WHERE {_LEFT}), 0) AS left_input,
    count(*) FILTER (WHERE {_LEFT} AND input_tokens + output_tokens = 0) AS unread,
    coalesce(sum(duration_ms) FILTER (WHERE {_LEFT} AND input_tokens + output_tokens = 0), 0) AS unread_ms,
    count(*) FILTER (WHERE input_tokens > 0) AS prompts, coalesce(sum(input_tokens), 0) AS prompt_tokens,
    count(*) FILTER (WHERE itl_ms > 0) AS gaps, coalesce(sum(itl_ms) FILTER (WHERE itl_ms > 0), 0) AS gaps_ms
    FROM {REQUESTS.name} WHERE started >= :start AND started < :end GROUP BY 1, 2
    """  # noqa: S608 - names of columns
)

Place = tuple[str, str, str]
"""Model, revision, and `input` or `output`."""


@dataclass(frozen=True, kw_only=True)
class Hour:
    """One hour of rows."""

    start: int
    """In seconds of Unix time."""
    requests: int
    tokens: Mapping[Place, int]
    bound: Mapping[Place, int]


def last_full(now: float) -> int:
    """Start of the last hour whose rows have arrived."""
    ended = int(now - CLOSED_AFTER_S)
    return ended - ended % HOUR_S - HOUR_S


class HourWatch:
    """Of one database. `look` raises ServiceError while it is away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._shown: Hour | None = None

    async def look(self, now: float) -> Hour:
        """Read the last full hour, and show it. Its rows are read only when their number has changed."""
        start = last_full(now)
        async with self._database.transaction() as connection:
            rows = (await connection.execute(_SUMS, {"hour": _moment(start)})).all()
        requests = sum(row.requests for row in rows)
        if self._shown and (self._shown.start, self._shown.requests) == (start, requests):
            return self._shown
        tokens = {(row.model, row.revision, kind): getattr(row, kind) for row in rows for kind in _KINDS}
        hour = Hour(start=start, requests=requests, tokens=tokens, bound=await self._bound(start))
        # Nothing is measured between these.
        for gauge, values in ((_TOKENS, hour.tokens), (_BOUND, hour.bound)):
            gauge.clear()
            for place, value in values.items():
                gauge.labels(*place).set(value)
        _START.set(start)
        self._shown = hour
        return hour

    async def _bound(self, start: int) -> dict[Place, int]:
        sums: dict[tuple[str, str], dict[str, float]] = {}
        for piece in range(start - _LONGEST_S, start + HOUR_S + EDGE_S, _PIECE_S):
            given = {"hour": _moment(start), "start": _moment(piece), "end": _moment(piece + _PIECE_S)}
            async with self._database.transaction() as connection:
                rows = (await connection.execute(_PIECE, given)).mappings().all()
            for row in rows:
                own = sums.setdefault((row["model"], row["revision"]), {})
                for name, value in row.items():
                    if name not in ("model", "revision"):
                        own[name] = own.get(name, 0.0) + float(value)
        return {(*place, kind): value for place, own in sums.items() for kind, value in bound_of(own).items() if value}


def bound_of(sums: Mapping[str, float]) -> dict[str, int]:
    """Tokens by which an engine may count more or fewer than the rows, of the sums of a revision.

    Rows at an edge may be in either hour as a whole. An abandoned stream's prompt is an estimate, and its engine goes
    on for ABORT_S; what was not streamed has no tokens in its row at all, and an engine worked on it until then.
    """
    itl_ms = sums["gaps_ms"] / sums["gaps"] if sums["gaps"] else _FAST_ITL_MS
    prompt = sums["prompt_tokens"] / sums["prompts"] if sums["prompts"] else 0.0
    return {
        "input": math.ceil(sums["across_input"] + sums["left_input"] + sums["unread"] * prompt),
        "output": math.ceil(sums["across_output"] + (sums["left_early"] * ABORT_S * 1000 + sums["unread_ms"]) / itl_ms),
    }


def _moment(unix_s: int) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
