"""Where rows go that came: what takes the place of PostgreSQL for rows has this one method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from services.ledger.lines import UsageRow
from services.ledger.prices import PriceBook


@dataclass(frozen=True)
class Added:
    """What became of a batch."""

    added: int
    known: int
    unpriced: int
    """Rows with tokens whose model has no price."""
    tokens: Mapping[tuple[str, str, str], int]
    """Model, revision, and `input` or `output` -> tokens of the rows that were added."""


class RowWriter(Protocol):
    """`services.ledger.store.Writer` is one: it adds rows and their sums in one transaction."""

    async def add(self, rows: Sequence[UsageRow], book: PriceBook) -> Added:
        """Add the rows that are not there yet; none is lost once this returns, as its shipper then forgets it. Raises
        ServiceError where that is not certain: rows then come again.
        """
