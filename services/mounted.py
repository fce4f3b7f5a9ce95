"""Files that a service has mounted. They are read when they are used: the program replaces them while it runs."""

from __future__ import annotations

import hmac
from pathlib import Path

from services.failure import ServiceError


def secret(file: Path) -> bytes:
    """The one secret of a file. Raises ServiceError where there is none."""
    try:
        content = file.read_bytes().strip()
    except OSError as error:
        raise unusable(file, error.strerror or type(error).__name__, "a file with one secret") from None
    if not content:
        raise unusable(file, "an empty file", "a file with one secret")
    return content


def has_secret(file: Path, token: str) -> bool:
    """Whether the token is the file's. Raises ServiceError."""
    return hmac.compare_digest(token.encode(), secret(file))


def unusable(file: Path, got: str, allowed: str) -> ServiceError:
    """The answer while a file is missing or not in its form."""
    fix = "mount the file as the platform's program writes it: run pulumi up"
    return ServiceError(
        503, "not_configured", f"{file} cannot be used", got=got, allowed=allowed, fix=fix, retry_after_s=5
    )
