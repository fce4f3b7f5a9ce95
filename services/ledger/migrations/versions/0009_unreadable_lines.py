"""Lines that are no row, which who ships them deletes."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "unreadable_lines",
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("came", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("line", sa.Text, nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """Nothing else has them: an earlier program leaves the table alone."""
