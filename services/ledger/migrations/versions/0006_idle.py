"""What stood idle of a model's GPUs on a day, and who is billed for it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "idle_by_day",
        sa.Column("day", TIMESTAMP(timezone=True), primary_key=True),
        sa.Column("revision", sa.Text, primary_key=True),
        sa.Column("carried", sa.BigInteger, nullable=False),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("callers", ARRAY(sa.Text), nullable=False),
        sa.Column("seconds", sa.BigInteger),
        if_not_exists=True,
    )


def downgrade() -> None:
    # Nothing else has what was billed. A day that an earlier program counts on might lack its revisions.
    op.execute("DELETE FROM idle_by_day WHERE seconds IS NULL")
