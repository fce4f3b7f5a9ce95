"""Why a request is refused: a status, a code for programs, and a sentence for people that never quotes a key."""

from __future__ import annotations

import re

# A key, whole or with a part of its secret.
_KEY = re.compile(r"sk-[a-z2-7]{10}-[a-z2-7]+")
_LONGEST = 60


def shown(value: object) -> str:
    """What was got, as a message may quote it."""
    text = _KEY.sub("sk-(hidden)", str(value))
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


class ServiceError(Exception):
    """What is wrong, what was got, what is allowed, and the fix."""

    def __init__(
        self, status: int, code: str, what: str, *, fix: str, got: str = "", allowed: str = "", retry_after_s: int = 0
    ) -> None:
        parts = [what, f"got {got}" if got else "", f"allowed: {allowed}" if allowed else "", f"fix: {fix}"]
        self.message = "; ".join(filter(None, parts))
        super().__init__(self.message)
        self.status, self.code, self.retry_after_s = status, code, retry_after_s


def database_away(reason: str, *, service: str, fix: str) -> ServiceError:
    """The answer while the database does not do what it is asked."""
    return ServiceError(
        503,
        "database_unavailable",
        f"the {service}'s database does not answer ({reason})",
        fix=fix,
        retry_after_s=2,
    )
