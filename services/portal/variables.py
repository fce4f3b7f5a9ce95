"""Names that the portal and its pods share."""

from __future__ import annotations

SERVICE = "portal"
"""The Service, in the gateway's namespace."""
DEFAULT_PORT = 8080
CLIENT_SECRET_KEY = "client-secret"  # noqa: S105 - a name
"""Of the Secret that the site names."""
