"""What the portal is started with. Tokens are read when they are used: the program replaces them while it runs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from services.portal import variables
from services.portal.failure import PortalError


@dataclass(frozen=True, kw_only=True)
class PortalSettings:
    """The options of the command line."""

    public_url: str
    issuer: str
    client_id: str
    client_secret_file: Path
    session_secret_file: Path
    catalogue_file: Path
    endpoint: str
    gateway: str
    directory: str
    directory_token_file: Path
    ledger: str | None = None
    ledger_token_file: Path | None = None
    ca_file: Path | None = None
    groups_claim: str = variables.DEFAULT_GROUPS_CLAIM

    @property
    def is_https(self) -> bool:
        return self.public_url.startswith("https://")

    def trust(self) -> ssl.SSLContext:
        """Whose certificates count: the usual ones, and those of the file."""
        context = ssl.create_default_context()
        if self.ca_file:
            context.load_verify_locations(self.ca_file)
        return context

    def check(self) -> None:
        """Raise PortalError for a file that is missing or empty, and for an address that is none."""
        for file in (self.client_secret_file, self.session_secret_file, self.directory_token_file):
            secret(file)
        if (self.ledger is None) != (self.ledger_token_file is None):
            raise _unusable("--ledger", "one of two", "--ledger with --ledger-token-file, or neither")
        if self.ledger_token_file:
            secret(self.ledger_token_file)
        urls = (self.public_url, self.issuer, self.endpoint, self.gateway, self.directory, self.ledger)
        for url in filter(None, urls):
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise _unusable(f"address {url}", "another form", "http://HOST or https://HOST")
        if self.ca_file:
            try:
                self.trust()
            except OSError as error:  # ssl.SSLError is one
                raise _unusable(str(self.ca_file), type(error).__name__, "certificates in PEM") from None


def secret(file: Path) -> str:
    """The one secret of a file. Raises PortalError where there is none."""
    try:
        content = file.read_text().strip()
    except OSError as error:
        raise _unusable(str(file), error.strerror or type(error).__name__, "a file with one secret") from None
    if not content:
        raise _unusable(str(file), "an empty file", "a file with one secret")
    return content


def _unusable(what: str, got: str, allowed: str) -> PortalError:
    fix = "Correct the portal's options and files; the platform's program writes both: run pulumi up."
    return PortalError(503, "not_configured", f"{what} cannot be used: got {got}; allowed: {allowed}.", fix)
