"""What was used and what it cost by hour or day, in the shape of OpenAI's usage API."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.failure import ServiceError, shown

GROUPS = {
    "project_id": "tenant",
    "api_key_id": "key",
    "model": "model",
    "revision": "revision",
    "tier": "tier",
    "service_tier": "tier",
}
"""What results may be grouped by -> the column of the table; `service_tier` is OpenAI's name of a tier."""
FILTERS = {"project_ids": "tenant", "api_key_ids": "key", "models": "model"}
WIDTHS_S = {"1h": 3600, "1d": 86_400}
COMPLETIONS, COSTS = "organization.usage.completions.result", "organization.costs.result"
_LIMITS = {COMPLETIONS: {"1h": (24, 168), "1d": (7, 31)}, COSTS: {"1h": (24, 168), "1d": (7, 180)}}
_SINGLE = ("start_time", "end_time", "bucket_width", "limit", "page")
_LATEST = 10**11


@dataclass(frozen=True, kw_only=True)
class UsageQuery:
    """A range of whole buckets, and what is summed in them."""

    kind: str
    """`COMPLETIONS` or `COSTS`."""
    start: int
    """The first bucket's, in seconds of Unix time."""
    end: int
    """The end of the last bucket of this page."""
    width_s: int
    last: int
    """The end of the last bucket of all pages."""
    groups: tuple[str, ...]
    filters: Mapping[str, tuple[str, ...]]
    """Column -> the values that count."""


def query_of(kind: str, parameters: Iterable[tuple[str, str]]) -> UsageQuery:
    """What a request asks for. Raises ServiceError, which names what is wrong.

    Lists may come as `name=a&name=b`, as `name[]=a&name[]=b`, or as `name=a,b`.
    """
    lists: dict[str, list[str]] = {name: [] for name in ("group_by", *FILTERS)}
    single: dict[str, str] = {}
    for given, text in parameters:
        name = given.removesuffix("[]")
        if name in lists:
            lists[name] += text.split(",")
        elif name in _SINGLE:
            single[name] = text
        else:
            raise wrong(shown(given)[1:-1], "no parameter of this request", text, ", ".join((*_SINGLE, *lists)))
    width = single.get("bucket_width", "1d")
    if width not in WIDTHS_S:
        raise wrong("bucket_width", "not a width", width, ", ".join(WIDTHS_S))
    if unknown := [group for group in lists["group_by"] if group not in GROUPS]:
        raise wrong("group_by", "no group", unknown[0], ", ".join(GROUPS))
    width_s = WIDTHS_S[width]
    start = _number("start_time", single.get("start_time"), _LATEST)
    end = _number("end_time", single.get("end_time", str(int(time.time()) + 1)), _LATEST)
    if end <= start:
        raise wrong("end_time", "not after start_time", str(end), f"more than {start}")
    usual, most = _LIMITS[kind][width]
    limit = _number("limit", single.get("limit", str(usual)), most, least=1)
    first = _number("page", single["page"].removeprefix("page_"), _LATEST) if "page" in single else start
    first -= first % width_s
    last = end + -end % width_s
    return UsageQuery(
        kind=kind,
        start=first,
        end=max(first, min(last, first + limit * width_s)),
        width_s=width_s,
        last=last,
        groups=tuple(dict.fromkeys(lists["group_by"])),
        filters={FILTERS[name]: tuple(lists[name]) for name in FILTERS if lists[name]},
    )


def page(query: UsageQuery, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer. rows: sums with their `bucket`, and the columns that they are grouped by."""
    by_bucket: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_bucket.setdefault(row["bucket"], []).append(_result(query, row))
    buckets = [
        {"object": "bucket", "start_time": at, "end_time": at + query.width_s, "results": by_bucket.get(at, [])}
        for at in range(query.start, query.end, query.width_s)
    ]
    more = query.end < query.last
    return {"object": "page", "data": buckets, "has_more": more, "next_page": f"page_{query.end}" if more else None}


def _result(query: UsageQuery, row: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: row[GROUPS[name]] if name in query.groups else None for name in GROUPS}
    if query.kind == COSTS:
        pico = int(row["cost_pico"])
        # OpenAI's value is a number, which has the digits of a double; the text is exact.
        amount = {"value": pico / 10**12, "currency": row["currency"].lower(), "exact": amount_text(pico)}
        return {"object": COSTS, "amount": amount, "line_item": None, **named}
    return {
        "object": COMPLETIONS,
        "input_tokens": row["input_tokens"],
        "input_cached_tokens": row["cached_input_tokens"],
        "output_tokens": row["output_tokens"],
        "output_reasoning_tokens": row["reasoning_tokens"],
        "num_model_requests": row["requests"] - row["failed"],
        "num_failed_requests": row["failed"],
        **named,
    }


def amount_text(pico: int) -> str:
    """All digits of an amount in pico-units, and at least two behind the point."""
    whole, rest = divmod(pico, 10**12)
    digits = f"{rest:012d}".rstrip("0").ljust(2, "0")
    return f"{whole}.{digits}"


def _number(name: str, text: str | None, most: int, *, least: int = 0) -> int:
    allowed = f"a whole number from {least} to {most}"
    if text is None:
        raise wrong(name, "missing", "nothing", allowed)
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(most)) or not least <= int(text) <= most:
        raise wrong(name, "not such a number", text, allowed)
    return int(text)


def wrong(name: str, what: str, got: str, allowed: str) -> ServiceError:
    """The answer to a parameter that is not in its form."""
    return ServiceError(
        422, "invalid_request", f"{name}: {what}", got=shown(got), allowed=allowed, fix="correct what is named"
    )
