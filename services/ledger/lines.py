"""Reads what Envoy wrote: one line of its access log is one row."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Any

_START = re.compile(rb'\{"')
_MOST_PIECES = 8
_STARTED = re.compile(r"(\d{1,11})(?:\.(\d{1,6}))?")
_LONGEST_ID, _LONGEST_TEXT = 100, 256
_NETWORK = re.compile(r"[0-9a-f]{16}")
_NETWORK_OF_LINE = re.compile(r'("network": ?")[^"]*')
_LONGEST_LINE = 16_384
"""Of what is kept of one that is no row: longer than Envoy's are."""
_MOST_TOKENS = 2**31 - 1
_LARGEST = 2**31 - 1
_MICRO = 1_000_000


class _UnreadableError(Exception):
    """Why a line is no row; `reason` is of a few, for a metric."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One request. Texts are empty and figures None where Envoy had none."""

    id: str
    started_us: int
    """Microseconds of Unix time."""
    tenant: str
    key: str
    tier: str
    model: str
    path: str
    status: int
    stream_error: int | None
    """The status in an error that a stream of HTTP 200 begins with."""
    details: str
    flags: str
    duration_ms: int | None
    ttft_ms: float | None
    itl_ms: float | None
    input_tokens: int
    cached_input_tokens: int
    """Of `input_tokens`, and never more than these."""
    output_tokens: int
    reasoning_tokens: int
    """Of `output_tokens`; they have no price of their own."""
    attempts: int | None
    replica: str
    prompt_id: str
    trace_id: str
    asked_model: str
    """What the client asked for, where another model answered; else empty."""
    revision: str
    """Of the model, that the request was sent to: the stable one has the model's name."""
    network: str = ""
    """Digest of the client's network, where keys are watched. The row in the database has none."""

    @property
    def failed(self) -> bool:
        """Whether the request got no answer of a model."""
        return not 100 <= self.status < 400 or self.stream_error is not None


@dataclass(frozen=True)
class Unreadable:
    """A line, or a part of one, that is no row."""

    reason: str
    line: str
    """Without its network, which nothing keeps for longer than an hour."""


@dataclass
class Read:
    """What a body had in it."""

    rows: list[UsageRow] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)


def read(body: bytes, *, earliest_us: int, latest_us: int) -> Read:
    """Rows of the lines of a body. A row that started outside of the given time is unreadable.

    Where a process died in the middle of a line and its successor wrote on, both are in one line: what is whole of it
    is a row.
    """
    lines = Read()
    for line in body.split(b"\n"):
        if line.strip():
            for text, piece in _pieces(line):
                try:
                    lines.rows.append(_row(piece, earliest_us, latest_us))
                except _UnreadableError as problem:
                    lines.unreadable.append(Unreadable(problem.reason, _kept(text)))
    return lines


def _kept(text: bytes) -> str:
    return _NETWORK_OF_LINE.sub(r"\1", text[:_LONGEST_LINE].decode(errors="backslashreplace")).replace("\0", "\\0")


def _pieces(line: bytes) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """The objects of a line, and what is none."""
    if (whole := _object(line)) is not None:
        yield line, whole
        return
    # An object of these begins with the quote of its first name; in a text, a quote has a backslash before it.
    ends = [*islice((match.start() for match in _START.finditer(line)), _MOST_PIECES), len(line)]
    done = 0
    for start, end in combinations(ends, 2):
        if start >= done and (piece := _object(line[start:end])) is not None:
            if start > done:
                yield line[done:start], None
            yield line[start:end], piece
            done = end
    if done < len(line):
        yield line[done:], None


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _row(line: dict[str, Any] | None, earliest_us: int, latest_us: int) -> UsageRow:
    if line is None:
        raise _UnreadableError("no object")
    started_us = _started_us(line.get("started"))
    if not earliest_us <= started_us <= latest_us:
        raise _UnreadableError("time")
    request_id = _text(line.get("id"), _LONGEST_ID + 1)
    if not 0 < len(request_id) <= _LONGEST_ID:
        raise _UnreadableError("id")
    tenant, _, key = _text(line.get("client"), _LONGEST_TEXT).partition(".")
    if not tenant or not key:
        raise _UnreadableError("client")
    tier, dot, _ = _text(line.get("objective"), _LONGEST_TEXT).partition(".")
    model = _text(line.get("model"), _LONGEST_TEXT)
    counted = [_tokens(line.get(f"{kind}_tokens")) for kind in ("input", "cached_input", "output", "reasoning")]
    return UsageRow(
        id=request_id,
        started_us=started_us,
        tenant=tenant,
        key=key,
        tier=tier if dot else "",
        model=model,
        path=_text(line.get("path"), _LONGEST_TEXT),
        status=_whole(line.get("status")) or 0,
        stream_error=_whole(line.get("stream_error")),
        details=_text(line.get("details"), _LONGEST_TEXT),
        flags=_text(line.get("flags"), _LONGEST_TEXT),
        duration_ms=_whole(line.get("duration_ms")),
        ttft_ms=_figure(line.get("ttft_ms")),
        itl_ms=_figure(line.get("itl_ms")),
        input_tokens=counted[0],
        cached_input_tokens=min(counted[1], counted[0]),
        output_tokens=counted[2],
        reasoning_tokens=min(counted[3], counted[2]),
        attempts=_whole(line.get("attempts")),
        replica=_text(line.get("replica"), _LONGEST_TEXT),
        prompt_id=_text(line.get("prompt_id"), _LONGEST_TEXT),
        trace_id=_text(line.get("trace_id"), _LONGEST_TEXT),
        asked_model=_text(line.get("asked_model"), _LONGEST_TEXT),
        # Earlier gateways name none, and those of a site whose models have no other.
        revision=_text(line.get("revision"), _LONGEST_TEXT) or model,
        network=_network(line.get("network")),
    )


def _started_us(value: object) -> int:
    """Exact from a text; a number has the microseconds of a double."""
    if isinstance(value, str) and (match := _STARTED.fullmatch(value)) and value.isascii():
        return int(match[1]) * _MICRO + int((match[2] or "0").ljust(6, "0"))
    number = None if isinstance(value, str) else _figure(value)
    if number is None:
        raise _UnreadableError("time")
    return round(number * _MICRO)


def _text(value: object, longest: int) -> str:
    """As PostgreSQL takes it: without NUL and halves of characters."""
    if value is None or value == "-":
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text.replace("\0", "")[:longest]


def _network(value: object) -> str:
    """Of a digest alone: whatever else came here, as an address, is not kept."""
    return value if isinstance(value, str) and _NETWORK.fullmatch(value) else ""


def _figure(value: object) -> float | None:
    """Of a number, or of a text that is one; None for anything else, also for what is not finite."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and abs(number) <= 1e15 else None


def _whole(value: object) -> int | None:
    """A figure that a column of the table holds; None for any other."""
    number = value if type(value) is int else _figure(value)
    return int(number) if number is not None and 0 <= number <= _LARGEST else None


def _tokens(value: object) -> int:
    """Of a count that is there. Raises _UnreadableError for one that no bill may be made of."""
    if value is None or value in ("", "-"):
        return 0
    count = _figure(value)
    if count is None or count != int(count) or not 0 <= count <= _MOST_TOKENS:
        raise _UnreadableError("tokens")
    return int(count)
