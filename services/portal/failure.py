"""Why a request is refused: a status, a code for programs, and sentences for people that never quote a key."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import Counter

_FAILURES = Counter("portal_upstream_failures", "Requests of the portal that a part did not answer.", ["part"])


@dataclass
class PortalError(Exception):
    """What is wrong, and what the person can do."""

    status: int
    code: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what} {self.fix}"


def away(part: str, rest: str) -> PortalError:
    """A part of the platform does not answer, which is counted. rest: what works without it."""
    _FAILURES.labels(part).inc()
    return PortalError(503, "part_away", f"The {part} does not answer now.", rest)


NOT_THERE = "not_there"
"""Code of what is missing."""


def missing(what: str) -> PortalError:
    """What is not there, or is not for this person: the answer is the same."""
    fix = "Choose from the lists of this page. If you expected it, ask who runs the platform about your groups."
    return PortalError(404, NOT_THERE, what, fix)


def refused(what: str, fix: str) -> PortalError:
    """What a person sent cannot be done."""
    return PortalError(422, "invalid_request", what, fix)
