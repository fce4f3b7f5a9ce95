"""Names that the portal, its pod and its callers share."""

from __future__ import annotations

URLS = {
    "--public-url": "address of the portal, as people open it",
    "--issuer": "OpenID provider",
    "--endpoint": "address of the models, as people put it into their clients",
    "--gateway": "address at which the portal reaches the gateway",
    "--directory": "directory of keys",
}
"""Options of the command line, each of which has an address, and what they mean."""
FILES = {
    "--client-secret-file": "secret of the portal's client at the issuer",
    "--session-secret-file": "secret that signs sessions; another one ends them",
    "--catalogue-file": "what the site offers, JSON",
    "--directory-token-file": "the directory's token of an operator",
}
"""Options that name a file."""

SERVICE = "portal"
"""The Service in the gateway's namespace."""
DEFAULT_PORT = 8080
DEFAULT_GROUPS_CLAIM = "groups"
CLIENT_SECRET_KEY = "client-secret"  # noqa: S105 - a name
"""Of the Secret that the site names."""
