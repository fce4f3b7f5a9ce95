"""What keys are watched by: their last requests, the networks that they came from, and the signals of either."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # Of an hour at most: not worth a log of writes, by which digests of networks would be in copies and backups.
    op.create_table(
        "recent_requests",
        sa.Column("minute", TIMESTAMP(timezone=True), primary_key=True),
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("refusal", sa.Text, primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "recent_networks",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("network", sa.Text, primary_key=True),
        sa.Column("seen", TIMESTAMP(timezone=True), nullable=False),
        prefixes=["UNLOGGED"],
    )
    op.create_table(
        "key_signals",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("signal", sa.Text, primary_key=True),
        sa.Column("began", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("seen", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("figures", JSONB, nullable=False),
    )


def downgrade() -> None:
    for name in ("key_signals", "recent_networks", "recent_requests"):
        op.drop_table(name)
