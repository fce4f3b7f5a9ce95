"""Suspensions of keys, by the names that these have at the gateway."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "suspensions",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("by_signal", sa.Boolean, nullable=False),
        sa.Column("lifted", sa.BigInteger),
        sa.Column("version", sa.BigInteger, nullable=False, index=True),
    )


def downgrade() -> None:
    op.drop_table("suspensions")
