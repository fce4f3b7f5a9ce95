"""Tables of the ledger; `migrations` makes them."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

from services.database import Kept

KEPT = Kept(
    service="ledger",
    migrations=Path(__file__).parent / "migrations" / "versions",
    # An operator may have the directory's tables in the same database.
    version_table="ledger_alembic_version",
    channel="ledger_changes",
    fix="try again; rows may be sent again, as those that are there are not added twice",
)
METADATA = sa.MetaData()
_MOMENT = TIMESTAMP(timezone=True)

REQUESTS = sa.Table(
    "requests",
    METADATA,
    sa.Column("started", _MOMENT, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("tier", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("stream_error", sa.Integer),
    sa.Column("details", sa.Text, nullable=False),
    sa.Column("flags", sa.Text, nullable=False),
    sa.Column("duration_ms", sa.BigInteger),
    sa.Column("ttft_ms", sa.Double),
    sa.Column("itl_ms", sa.Double),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_input_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("attempts", sa.Integer),
    sa.Column("replica", sa.Text, nullable=False),
    sa.Column("prompt_id", sa.Text, nullable=False),
    sa.Column("trace_id", sa.Text, nullable=False),
    sa.Column("asked_model", sa.Text, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),
    sa.Column("failed", sa.Boolean, nullable=False),
    sa.Column("price_version", sa.Text, nullable=False),
    sa.Column("cost_pico", sa.Numeric, nullable=False),
    postgresql_partition_by="RANGE (started)",
)
"""A row for each request. It has a partition for each month, by UTC; the key removes doubles."""


def _by_hour(name: str, *more: str) -> sa.Table:
    """Sums of requests that are alike in their key: `more` as well."""
    alike = ("tenant", "key", "model", "tier", "price_version", *more)
    counted = ("requests", "failed", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens")
    return sa.Table(
        name,
        METADATA,
        sa.Column("hour", _MOMENT, primary_key=True),
        *(sa.Column(column, sa.Text, primary_key=True) for column in alike),
        *(sa.Column(column, sa.BigInteger, nullable=False) for column in counted),
        sa.Column("cost_pico", sa.Numeric, nullable=False),
        sa.Index(f"{name}_of_tenant", "tenant", "hour"),
    )


USAGE = _by_hour("usage_by_hour")
"""Sums of the rows, written in the transaction that adds them; they outlive the rows."""

REVISIONS = _by_hour("revisions_by_hour", "revision")
"""What of these sums another revision than the model's stable one answered: nothing, of most models."""

SPENT = sa.Table(
    "spent_by_month",
    METADATA,
    sa.Column("month", _MOMENT, primary_key=True),
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("price_version", sa.Text, primary_key=True),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("cost_pico", sa.Numeric, nullable=False),
)
"""The same by month of UTC, in a few rows for each tenant: gatekeepers ask for these every few seconds."""

RECOUNTS = sa.Table("recounts", METADATA, sa.Column("due", _MOMENT, primary_key=True))
"""When the running month's are counted again: once a program that knows none of them has ended."""

UNREADABLE = sa.Table(
    "unreadable_lines",
    METADATA,
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("came", _MOMENT, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("line", sa.Text, nullable=False),
)
"""Lines that are no row, each once, as long as rows: who ships them deletes them."""

KEPT_UNTIL = sa.Table(
    "kept_until",
    METADATA,
    sa.Column("what", sa.Text, primary_key=True),
    sa.Column("until", _MOMENT),
)
"""Up to when rows have lost their traces, and sums their keys; null before the first time."""

PRICE_VERSIONS = sa.Table(
    "price_versions",
    METADATA,
    sa.Column("version", sa.Text, primary_key=True),
    sa.Column("content", JSONB, nullable=False),
)
"""Each version of the price book that a row was priced by."""

IDLE = sa.Table(
    "idle_by_day",
    METADATA,
    sa.Column("day", _MOMENT, primary_key=True),
    sa.Column("revision", sa.Text, primary_key=True),
    sa.Column("carried", sa.BigInteger, nullable=False),
    sa.Column("price", sa.BigInteger, nullable=False),
    sa.Column("currency", sa.Text, nullable=False),
    sa.Column("callers", ARRAY(sa.Text), nullable=False),
    sa.Column("seconds", sa.BigInteger),
)
"""GPUs of revisions whose idle time is billed, by day; `seconds` for each of the callers, null until a day is closed.
"""

RECENT = sa.Table(
    "recent_requests",
    METADATA,
    sa.Column("minute", _MOMENT, primary_key=True),
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("refusal", sa.Text, primary_key=True),
    sa.Column("requests", sa.BigInteger, nullable=False),
)
"""Sums of the rows of the last minutes, where keys are watched. `refusal`: why, empty for what was not refused."""

NETWORKS = sa.Table(
    "recent_networks",
    METADATA,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("network", sa.Text, primary_key=True),
    sa.Column("seen", _MOMENT, nullable=False),
)
"""Networks that a key came from within the last hour, as digests that only a gatekeeper can make; no row has them."""

SIGNALS = sa.Table(
    "key_signals",
    METADATA,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("signal", sa.Text, primary_key=True),
    sa.Column("began", _MOMENT, nullable=False),
    sa.Column("seen", _MOMENT, nullable=False),
    sa.Column("figures", JSONB, nullable=False),
)
"""What was seen of keys that may be abused, and by which figures it was last."""
