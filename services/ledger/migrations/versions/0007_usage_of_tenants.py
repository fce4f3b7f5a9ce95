"""The sums by hour of one tenant are found without those of all others."""

from alembic import op

revision = "0007"
down_revision = "0006"
_TABLES = ("usage_by_hour", "revisions_by_hour")


def upgrade() -> None:
    for table in _TABLES:
        op.create_index(f"{table}_of_tenant", table, ["tenant", "hour"])


def downgrade() -> None:
    for table in _TABLES:
        op.drop_index(f"{table}_of_tenant")
