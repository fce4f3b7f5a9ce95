"""Files that the directory works from. They are read when they are used: the program replaces them while it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.mounted import has_secret, secret, unusable


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where each of them is."""

    database_url: Path
    tenants: Path
    pepper: Path
    operator_token: Path
    reader_token: Path

    def pepper_bytes(self) -> bytes:
        """What digests are made with. Raises ServiceError."""
        return secret(self.pepper)

    def is_operator(self, token: str) -> bool:
        """Whether the token is an operator's. Raises ServiceError."""
        return has_secret(self.operator_token, token)

    def is_reader(self, token: str) -> bool:
        """Whether the token is a reader's. Raises ServiceError."""
        return has_secret(self.reader_token, token)

    def url(self) -> str:
        """Of the database. Raises ServiceError."""
        return secret(self.database_url).decode()

    def models_by_tenant(self) -> Mapping[str, list[str]]:
        """The models that each tenant of the site's file may use. Raises ServiceError."""
        try:
            tenants = json.loads(self.tenants.read_bytes())["tenants"]
            return {name: list(tenant["models"]) for name, tenant in tenants.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise unusable(
                self.tenants, type(error).__name__, 'JSON as {"tenants": {"NAME": {"models": []}}}'
            ) from None

    def check(self) -> None:
        """Raise ServiceError for a file that is missing, empty or not in its form."""
        for file in (self.database_url, self.pepper, self.operator_token, self.reader_token):
            secret(file)
        self.models_by_tenant()
