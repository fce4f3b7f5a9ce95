"""Months of UTC, which partitions, bills and the time that rows are kept are made of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_NAME = re.compile(r"(\d{4})-(\d{2})")


@dataclass(frozen=True, order=True)
class Month:
    """One month."""

    number: int
    """Counted from January of the year 0."""

    @classmethod
    def of(cls, unix_s: float) -> Month:
        """The month of a moment."""
        moment = datetime.fromtimestamp(unix_s, UTC)
        return cls(12 * moment.year + moment.month - 1)

    @classmethod
    def named(cls, name: str) -> Month | None:
        """Of a text such as 2026-12; None for any other."""
        match = _NAME.fullmatch(name)
        if match is None or not name.isascii() or not 1 <= int(match[2]) <= 12 or not 2000 <= int(match[1]) <= 9000:
            return None
        return cls(12 * int(match[1]) + int(match[2]) - 1)

    def __add__(self, months: int) -> Month:
        return Month(self.number + months)

    def __str__(self) -> str:
        return f"{self.number // 12:04d}-{self.number % 12 + 1:02d}"

    @property
    def start(self) -> datetime:
        """Its first moment."""
        return datetime(self.number // 12, self.number % 12 + 1, 1, tzinfo=UTC)
