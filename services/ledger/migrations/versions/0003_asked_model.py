"""What a client asked for, of requests that another model answered."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # Without the default the rows that are there would be written again.
    op.add_column("requests", sa.Column("asked_model", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("requests", "asked_model")
