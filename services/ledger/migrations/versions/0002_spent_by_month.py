"""Sums by month and tenant, against which budgets are held; of the running month, with what is there already."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "spent_by_month",
        sa.Column("month", TIMESTAMP(timezone=True), primary_key=True),
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("price_version", sa.Text, primary_key=True),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_pico", sa.Numeric, nullable=False),
    )
    op.execute(
        "INSERT INTO spent_by_month (month, tenant, price_version, tokens, cost_pico) "
        "SELECT date_trunc('month', hour, 'UTC'), tenant, price_version, sum(input_tokens + output_tokens), "
        "sum(cost_pico) FROM usage_by_hour WHERE hour >= date_trunc('month', now(), 'UTC') GROUP BY 1, 2, 3"
    )


def downgrade() -> None:
    op.drop_table("spent_by_month")
