"""The chain of the audit: each row has a hash over the row before it, so that one which was changed does not fit.

A whole chain that was written again fits by itself. It differs from a head that was kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

COLUMNS = ("number", "at", "actor", "source", "action", "subject", "tenant", "before", "after")
"""What a hash is over, beside the hash of the row before."""

_BEFORE_THE_FIRST = "0" * 64
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")


@dataclass(frozen=True)
class Head:
    """The end of a chain, by which it is recognised later: how many rows it has, and the hash of the last one."""

    count: int = 0
    hash: str = _BEFORE_THE_FIRST

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @classmethod
    def named(cls, text: str) -> Head | None:
        """Out of the form in which it is kept, COUNT:HASH; None for a text of another form."""
        match = _HEAD.fullmatch(text)
        return cls(int(match[1]), match[2]) if match else None

    def then(self, row: Mapping[str, Any]) -> Head:
        """The head of the chain with one more row."""
        # ASCII alone, so that it is the same bytes everywhere.
        text = json.dumps([self.hash, *(row[name] for name in COLUMNS)], sort_keys=True, separators=(",", ":"))
        return Head(self.count + 1, hashlib.sha256(text.encode()).hexdigest())


def chained(rows: Iterable[Mapping[str, Any]], kept: Head | None = None) -> tuple[Head, str]:
    """The head of these rows, all from the first one, and what is wrong: the first row that does not fit, or nothing.

    kept: a head of the same chain from earlier.
    """
    head = Head()
    for row in rows:
        head = head.then(row)
        if row["hash"] != head.hash:
            return head, f"row {row['number']} does not fit: it was changed, or a row before it is missing"
        if kept is not None and head.count == kept.count and head.hash != kept.hash:
            return head, f"row {row['number']} is not the one of the head that was kept: it was written again"
    if kept is not None and head.count < kept.count:
        return head, f"row {head.count + 1} is missing: there were {kept.count} rows, and {head.count} are left"
    return head, ""
