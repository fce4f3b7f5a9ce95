"""Orders of models."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "model_orders",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("asked_by", sa.Text, nullable=False),
        sa.Column("asked", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
    )
    op.create_index(
        "model_orders_open",
        "model_orders",
        ["tenant", "model"],
        unique=True,
        postgresql_where=sa.text("state IN ('asked', 'proposed')"),
    )


def downgrade() -> None:
    op.drop_table("model_orders")
