"""How alembic runs: in the transaction that the directory has opened (database.py)."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
