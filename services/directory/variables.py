"""Names that the directory, its pod and its callers share: settings, headers, the Secrets of a site."""

from __future__ import annotations

FILES = ("--database-url-file", "--tenants-file", "--pepper-file", "--operator-token-file", "--reader-token-file")
"""Options of the command line, each of which names a file."""

DEFAULT_PORT = 8080

TOKEN_HEADER = "x-directory-token"  # noqa: S105 - a name
ACTOR_HEADER = "x-directory-actor"
SOURCE_HEADER = "x-directory-source"
"""Through what the actor asks, for the audit, and from which address where that is known."""
PORTAL = "portal"
"""How the source of a request of the portal's begins."""

OPEN_ORDERS = ("asked", "proposed")
"""States of orders of models that are neither served nor declined."""

SERVICE = "directory"
"""The Service in the gateway's namespace."""
DATABASE_KEY = "url"
"""Of the Secret with the database's address, which the site names."""
TOKENS_SECRET, OPERATOR_KEY, READER_KEY = "directory-secrets", "operator-token", "reader-token"
PEPPER_KEY = "pepper"
