"""How alembic runs, for each service: in the transaction that the service has opened (services/database.py)."""

from alembic import context

attributes = context.config.attributes
context.configure(connection=attributes["connection"], version_table=attributes["version_table"])
with context.begin_transaction():
    context.run_migrations()
