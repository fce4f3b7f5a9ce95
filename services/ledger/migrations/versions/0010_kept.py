"""How far what is kept for a time has gone: traces of rows, and keys of sums."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "kept_until",
        sa.Column("what", sa.Text, primary_key=True),
        sa.Column("until", TIMESTAMP(timezone=True)),
    )
    op.execute("INSERT INTO kept_until (what) VALUES ('keys'), ('traces')")


def downgrade() -> None:
    op.drop_table("kept_until")
