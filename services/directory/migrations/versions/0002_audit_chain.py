"""The audit has from where, before and after, and is a chain; rows that are there become its first ones."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from services.directory.audit import Head

revision = "0002"
down_revision = "0001"

_AT_ONCE = 1000


def upgrade() -> None:
    op.alter_column("audit", "key_id", new_column_name="subject")
    op.add_column("audit", sa.Column("source", sa.Text, nullable=False, server_default=""))
    op.add_column("audit", sa.Column("before", JSONB))
    op.add_column("audit", sa.Column("after", JSONB))
    op.add_column("audit", sa.Column("hash", sa.Text))
    op.alter_column("audit", "source", server_default=None)
    # A number is in its row's hash, and a sequence gives none back.
    op.execute("ALTER TABLE audit ALTER number DROP IDENTITY")
    op.execute("ALTER TABLE audit DISABLE TRIGGER append_only")
    _chain(op.get_bind())
    op.execute("ALTER TABLE audit ENABLE TRIGGER append_only")
    op.alter_column("audit", "hash", nullable=False)


def _chain(connection: sa.Connection) -> None:
    head, hashes = Head(), []
    for row in connection.execute(sa.text("SELECT * FROM audit ORDER BY number")).mappings():
        head = head.then(dict(row))
        hashes.append({"number": row["number"], "hash": head.hash})
    for first in range(0, len(hashes), _AT_ONCE):
        some = hashes[first : first + _AT_ONCE]
        connection.execute(sa.text("UPDATE audit SET hash = :hash WHERE number = :number"), some)


def downgrade() -> None:
    for name in ("source", "before", "after", "hash"):
        op.drop_column("audit", name)
    op.alter_column("audit", "subject", new_column_name="key_id")
    op.execute("ALTER TABLE audit ALTER number ADD GENERATED ALWAYS AS IDENTITY")
    op.execute(
        "SELECT setval(pg_get_serial_sequence('audit', 'number'), coalesce(max(number), 0) + 1, false) FROM audit"
    )
