"""Which key took the place of a rotated one, and an index for the keys of a tenant."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("keys", sa.Column("successor", sa.Text))
    op.create_index("ix_keys_tenant", "keys", ["tenant"])


def downgrade() -> None:
    op.drop_index("ix_keys_tenant", "keys")
    op.drop_column("keys", "successor")
