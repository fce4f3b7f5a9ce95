"""Which revision of its model answered a request, and sums by hour of what others than the model's stable one did."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # Of the rows that are there it is not known; without the default they would be written again.
    op.add_column("requests", sa.Column("revision", sa.Text, nullable=False, server_default=""))
    # Beside usage_by_hour, whose key an earlier program still adds by, and which may be long.
    op.create_table(
        "revisions_by_hour",
        sa.Column("hour", TIMESTAMP(timezone=True), primary_key=True),
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("tier", sa.Text, primary_key=True),
        sa.Column("price_version", sa.Text, primary_key=True),
        sa.Column("revision", sa.Text, primary_key=True),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_pico", sa.Numeric, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("revisions_by_hour")
    op.drop_column("requests", "revision")
