"""Adapters that take turns on a GPU: how many requests run beside each other, and what the others wait for.

Requests of one step have no more adapters than there are places: others wait until the last request of one has ended
(vLLM 0.32, v1/core/sched/scheduler.py). So of adapters that are all asked alike, hardly more requests run at once than
there are places. A place is taken from the adapter that was asked for the longest ago; another one is copied to it out
of the node's memory, and that step waits for it. Requests for the model itself need no place; here all are for one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from stacks.facts.catalogue import CatalogueModel
from stacks.proof.adapters import Adapters, adapter_bytes, projections
from stacks.proof.kept import kept_until
from stacks.proof.layouts import Layout

# More requests than one engine runs.
_MOST = 1e6
# Each matrix is copied by itself. An estimate, of one copy.
_COPY_S = 10e-6


@dataclass(frozen=True)
class AdapterTurns:
    """Of places that are fewer than adapters."""

    missed: float
    """Share of the requests, 0 to 1, whose adapter has no place as they come."""
    kept: float
    """Requests after which an adapter that none of them is for has lost its place."""
    at_once: float
    """Requests that run at once with as many adapters as there are places, on average."""


def turns(adapters: Adapters | None) -> AdapterTurns | None:
    """None where each has a place of its own."""
    if adapters is None or adapters.slots >= len(adapters.loaded):
        return None
    return _turns(adapters.slots, len(adapters.loaded), adapters.skew)


@lru_cache(maxsize=256)
def _turns(places: int, count: int, skew: float) -> AdapterTurns:
    shares = asked_shares(count, skew)
    kept = kept_until(lambda asked: sum(-math.expm1(-share * asked) for share in shares), places, _MOST)
    at_once = kept_until(lambda running: sum(1 - (1 - share) ** running for share in shares), places, _MOST)
    return AdapterTurns(missed=sum(share * math.exp(-share * kept) for share in shares), kept=kept, at_once=at_once)


def asked_shares(count: int, skew: float) -> list[float]:
    """Shares of the requests by adapter, the most asked first (Zipf's law); their sum is 1."""
    weights = [(place + 1) ** -skew for place in range(count)]
    total = sum(weights)
    return [weight / total for weight in weights]


def load_s(model: CatalogueModel, layout: Layout, adapters: Adapters, bytes_per_s: float) -> float:
    """Seconds in which one adapter of the largest rank comes to its place on all GPUs, which copy side by side."""
    size = adapter_bytes(model, layout, adapters) / adapters.slots
    return size / bytes_per_s + 2 * projections(model, layout, adapters) * _COPY_S
