"""Names that the directory, its pod and its callers share: settings, headers, the Secrets of a site."""

from __future__ import annotations

from collections.abc import Mapping

DATABASE_URL_FILE = "DIRECTORY_DATABASE_URL_FILE"
TENANTS_FILE = "DIRECTORY_TENANTS_FILE"
PEPPER_FILE = "DIRECTORY_PEPPER_FILE"
OPERATOR_TOKEN_FILE = "DIRECTORY_OPERATOR_TOKEN_FILE"  # noqa: S105 - a name
READER_TOKEN_FILE = "DIRECTORY_READER_TOKEN_FILE"  # noqa: S105 - a name
PORT = "DIRECTORY_PORT"

OPTIONS: Mapping[str, str] = {
    "--database-url-file": DATABASE_URL_FILE,
    "--tenants-file": TENANTS_FILE,
    "--pepper-file": PEPPER_FILE,
    "--operator-token-file": OPERATOR_TOKEN_FILE,
    "--reader-token-file": READER_TOKEN_FILE,
}
"""By option of the command line that names a file: the variable that sets it too."""

DEFAULT_PORT = 8080

TOKEN_HEADER = "x-directory-token"  # noqa: S105 - a name
ACTOR_HEADER = "x-directory-actor"

SERVICE = "directory"
"""The Service in the gateway's namespace."""
DATABASE_SECRET, DATABASE_KEY = "directory-database", "url"
TOKENS_SECRET, OPERATOR_KEY, READER_KEY = "directory-secrets", "operator-token", "reader-token"
PEPPER_KEY = "pepper"
