"""The sums by hour of one tenant are found without those of all others."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_index("usage_by_hour_of_tenant", "usage_by_hour", ["tenant", "hour"])


def downgrade() -> None:
    op.drop_index("usage_by_hour_of_tenant")
