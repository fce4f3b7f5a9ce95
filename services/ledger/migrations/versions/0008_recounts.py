"""Sums of the running month are counted again once, when no earlier program adds to those by hour alone any more."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table("recounts", sa.Column("due", TIMESTAMP(timezone=True), primary_key=True))
    # Its pods are replaced within minutes.
    op.execute("INSERT INTO recounts (due) VALUES (now() + interval '1 hour')")


def downgrade() -> None:
    op.drop_table("recounts")
