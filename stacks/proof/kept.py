"""How long a cache keeps what is not asked for.

A cache that drops what was asked for the longest ago keeps all of it for about the same time t: what fills its room
(H. Che, Y. Tung, Z. Wang, Hierarchical web caching systems, IEEE JSAC 20(7), 2002, section III). So what is asked for
at random r times a second is missing exp(-r t) of the time.
"""

from __future__ import annotations

from collections.abc import Callable

_HALVINGS = 40


def kept_until(filled: Callable[[float], float], room: float, most: float) -> float:
    """The time from 0 to `most` in which as much is asked for as has room. filled: never falls."""
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if filled(middle) > room else (middle, high)
    return low
