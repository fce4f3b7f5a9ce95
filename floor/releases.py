"""Versions as numbers, and how many minor versions lie between two of them."""

from __future__ import annotations

import re
from collections.abc import Sequence


def numbers(version: str) -> tuple[int, int, int]:
    """`v1.13` -> (1, 13, 0). A suffix behind the third number, such as that of a release candidate, is ignored."""
    parsed = [int(part) for part in re.findall(r"\d+", version)[:3]]
    major, minor, patch = parsed + [0] * (3 - len(parsed))
    return major, minor, patch


def minor_of(version: str) -> str:
    """`v1.13.9` -> `v1.13`."""
    major, minor, _ = numbers(version)
    return f"v{major}.{minor}"


def between(now: str, then: str, releases: Sequence[str] = ()) -> str:
    """The minor version that a step from `now` to `then` leaves out, the nearest to `now`; empty where it leaves none.

    Works in both directions. releases: every minor version in order, where they are not counted up by one; without it,
    another major version has none that is known, so it leaves nothing out.
    """
    (major, minor, _), (other_major, other_minor, _) = numbers(now), numbers(then)
    if releases:
        ends = sorted([(major, minor), (other_major, other_minor)])
        skipped = [release for release in releases if ends[0] < numbers(release)[:2] < ends[1]]
        nearest = 0 if (major, minor) == ends[0] else -1
        return f"v{skipped[nearest]}" if skipped else ""
    if major != other_major or abs(other_minor - minor) < 2:
        return ""
    return f"v{major}.{minor + 1 if other_minor > minor else minor - 1}"
