"""Files that the directory works from. They are read when they are used: the program replaces them while it runs."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.directory.failure import DirectoryError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where each of them is."""

    database_url: Path
    tenants: Path
    pepper: Path
    operator_token: Path
    reader_token: Path

    def pepper_bytes(self) -> bytes:
        """What digests are made with. Raises DirectoryError."""
        return _secret(self.pepper)

    def is_operator(self, token: str) -> bool:
        """Whether the token is an operator's. Raises DirectoryError."""
        return hmac.compare_digest(token.encode(), _secret(self.operator_token))

    def is_reader(self, token: str) -> bool:
        """Whether the token is a reader's. Raises DirectoryError."""
        return hmac.compare_digest(token.encode(), _secret(self.reader_token))

    def url(self) -> str:
        """Of the database. Raises DirectoryError."""
        return _secret(self.database_url).decode()

    def models_by_tenant(self) -> Mapping[str, list[str]]:
        """The models that each tenant of the site's file may use. Raises DirectoryError."""
        try:
            tenants = json.loads(self.tenants.read_bytes())["tenants"]
            return {name: list(tenant["models"]) for name, tenant in tenants.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unusable(
                self.tenants, type(error).__name__, 'JSON as {"tenants": {"NAME": {"models": []}}}'
            ) from None

    def check(self) -> None:
        """Raise DirectoryError for a file that is missing, empty or not in its form."""
        for file in (self.database_url, self.pepper, self.operator_token, self.reader_token):
            _secret(file)
        self.models_by_tenant()


def _secret(file: Path) -> bytes:
    try:
        content = file.read_bytes().strip()
    except OSError as error:
        raise _unusable(file, error.strerror or type(error).__name__, "a file with one secret") from None
    if not content:
        raise _unusable(file, "an empty file", "a file with one secret")
    return content


def _unusable(file: Path, got: str, allowed: str) -> DirectoryError:
    fix = "mount the file as the platform's program writes it: run pulumi up"
    return DirectoryError(
        503, "not_configured", f"{file} cannot be used", got=got, allowed=allowed, fix=fix, retry_after_s=5
    )
