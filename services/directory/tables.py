"""Tables of the directory; `migrations` makes them."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from services.database import Kept
from services.directory.variables import OPEN_ORDERS

KEPT = Kept(
    service="directory",
    migrations=Path(__file__).parent / "migrations" / "versions",
    version_table="alembic_version",
    channel="directory_changes",
    fix="try again; after a write, list the keys first, as it may be there; keys that exist go on working",
)
METADATA = sa.MetaData()
CLOCK = sa.func.extract("epoch", sa.func.clock_timestamp())
"""The database's, in seconds of Unix time."""

KEYS = sa.Table(
    "keys",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("tenant", sa.Text, nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("models", ARRAY(sa.Text)),
    sa.Column("created", sa.BigInteger, nullable=False),
    sa.Column("expires", sa.BigInteger),
    sa.Column("revoked", sa.BigInteger),
    sa.Column("version", sa.BigInteger, nullable=False, index=True),
    sa.Column("successor", sa.Text),
)
"""Times are seconds of Unix time. `version` is that of the last change of the row; `successor` the id of the key that
took its place.
"""

PROMPTS = sa.Table(
    "prompts",
    METADATA,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("text", sa.Text),
    sa.Column("in_use", sa.Boolean, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False, index=True),
)
"""`number` is the version of a prompt, `version` that of the last change of the row, as of a key. Removed: no text."""

SUSPENSIONS = sa.Table(
    "suspensions",
    METADATA,
    sa.Column("tenant", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("by_signal", sa.Boolean, nullable=False),
    sa.Column("lifted", sa.BigInteger),
    sa.Column("version", sa.BigInteger, nullable=False, index=True),
)
"""The last one of each key, by the name that it has at the gateway: also of one in the site's file, which is not here.
"""

LAST_CHANGE = sa.Table(
    "last_change",
    METADATA,
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""One row, which every write updates first: writers wait for each other, so versions commit in their order."""

AUDIT = sa.Table(
    "audit",
    METADATA,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("before", JSONB(none_as_null=True)),
    sa.Column("after", JSONB(none_as_null=True)),
    sa.Column("hash", sa.Text, nullable=False),
)
"""Who did what from where, and what it changed: a chain (audit.py). A trigger refuses to change or delete its rows."""

MODEL_ORDERS = sa.Table(
    "model_orders",
    METADATA,
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
"""Times are seconds of Unix time. `why`: where a proposal is, or the reason of a refusal."""
_ONE_OPEN = sa.Index(
    "model_orders_open",
    MODEL_ORDERS.c.tenant,
    MODEL_ORDERS.c.model,
    unique=True,
    postgresql_where=MODEL_ORDERS.c.state.in_(OPEN_ORDERS),
)
