"""Requests by month, their sums by hour, and the versions of prices."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "requests",
        sa.Column("started", TIMESTAMP(timezone=True), primary_key=True),
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
        sa.Column("failed", sa.Boolean, nullable=False),
        sa.Column("price_version", sa.Text, nullable=False),
        sa.Column("cost_pico", sa.Numeric, nullable=False),
        postgresql_partition_by="RANGE (started)",
    )
    op.create_table(
        "usage_by_hour",
        sa.Column("hour", TIMESTAMP(timezone=True), primary_key=True),
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("tier", sa.Text, primary_key=True),
        sa.Column("price_version", sa.Text, primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_pico", sa.Numeric, nullable=False),
    )
    op.create_table(
        "price_versions",
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("content", JSONB, nullable=False),
    )
