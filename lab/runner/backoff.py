"""Delays between restarts of a container, and between retries of a failed call; no side effects."""

from __future__ import annotations

from dataclasses import dataclass

# The kubelet starts at 10 s and stops growing at 5 min; a lab keeps the ratio and shortens the base.
_CAP_IN_BASES = 30


@dataclass(kw_only=True)
class RestartBackoff:
    """The kubelet's rule: the first restart at once, then `base_s` doubling up to 30 times the base.

    A run longer than twice the cap starts over.
    """

    base_s: float
    _next_s: float = 0.0

    @property
    def cap_s(self) -> float:
        return self.base_s * _CAP_IN_BASES

    def delay(self, ran_s: float) -> float:
        """Seconds to wait after a run of `ran_s` seconds."""
        if ran_s > 2 * self.cap_s:
            self._next_s = 0.0
        delay = self._next_s
        self._next_s = min(max(delay * 2, self.base_s), self.cap_s)
        return delay


@dataclass(kw_only=True)
class RetryBackoff:
    """Doubling delays for a call that fails."""

    base_s: float = 0.5
    cap_s: float = 10.0
    _next_s: float = 0.0

    def delay(self) -> float:
        self._next_s = min(max(self._next_s * 2, self.base_s), self.cap_s)
        return self._next_s
