"""The few formulas behind the reported figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

__all__ = ["fairness", "growth_exponent", "median", "percentile", "proportions", "spread"]


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


def fairness(shares: Sequence[float]) -> float:
    """Jain's index: 1 where all got as much, 1 / count where one got all. Raises ValueError where none got anything."""
    if not any(shares):
        raise ValueError("no shares to compare")
    return float(sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)))


def proportions(rows: Sequence[Sequence[float]], costs: Sequence[float]) -> list[float]:
    """What one of each kind costs: rows have counts by kind, and the sum of counts x prices is close to a row's cost.

    Least squares of relative errors by the normal equations; no price is below zero: a kind that would be is free.
    Raises ValueError for fewer rows than kinds, or a cost that is not positive.
    """
    kinds = len(rows[0]) if rows else 0
    if len(rows) < kinds or len(rows) != len(costs) or min(costs, default=0.0) <= 0:
        raise ValueError("a fit takes a row at least for each kind, each with a cost above zero")
    paid = list(range(kinds))
    while True:
        shares = [[row[kind] / cost for kind in paid] for row, cost in zip(rows, costs, strict=True)]
        prices = dict(zip(paid, _solved(shares), strict=True))
        if all(price >= 0 for price in prices.values()):
            return [prices.get(kind, 0.0) for kind in range(kinds)]
        paid.remove(min(prices, key=lambda kind: prices[kind] * max(row[kind] for row in rows)))


def _solved(shares: Sequence[Sequence[float]]) -> list[float]:
    """The x for which shares . x is closest to 1 in all rows (Gauss and Jordan)."""
    size = len(shares[0])
    matrix = [
        [sum(row[a] * row[b] for row in shares) for b in range(size)] + [sum(row[a] for row in shares)]
        for a in range(size)
    ]
    for column in range(size):
        pivot = max(range(column, size), key=lambda place: abs(matrix[place][column]))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        lead = matrix[column][column]
        if not lead:
            raise ValueError("two kinds have the same counts in every row")
        matrix[column] = [value / lead for value in matrix[column]]
        for place in range(size):
            if place != column:
                factor = matrix[place][column]
                matrix[place] = [a - factor * b for a, b in zip(matrix[place], matrix[column], strict=True)]
    return [row[-1] for row in matrix]
