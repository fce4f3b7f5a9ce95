"""The few formulas behind the reported figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

__all__ = ["growth_exponent", "median", "percentile", "spread"]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie, linear between two neighbours.

    Raises ValueError when there are no values.
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def growth_exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """k of the best fit cost = a * size^k (least squares on logarithms): 1 is linear, 2 is quadratic.

    Raises ValueError for fewer than two different sizes or a cost that is not positive.
    """
    if len(set(sizes)) < 2 or len(sizes) != len(costs) or min(costs) <= 0:
        raise ValueError("a fit takes at least two different sizes, each with a cost above zero")
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return slope / sum((a - mean_x) ** 2 for a in x)


def spread(counts: Sequence[float]) -> float:
    """Largest over smallest: 1 is an even share. Infinite when one got nothing."""
    return max(counts) / min(counts) if min(counts) > 0 else math.inf
