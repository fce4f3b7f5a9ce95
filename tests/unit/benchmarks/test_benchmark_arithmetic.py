"""The formulas behind the benchmarks' figures, on numbers that were calculated manually."""

from __future__ import annotations

import math

import pytest

from benchmarks.arithmetic import fairness, growth_exponent, percentile, proportions, spread


def test_percentile_lies_between_its_neighbours() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert percentile([10.0, 20.0], 0.99) == pytest.approx(19.9)
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([1.0, 2.0, 3.0], 1.0) == 3.0


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_growth_exponent_is_found(exponent: float) -> None:
    sizes = [100, 300, 1000, 3000]
    assert growth_exponent(sizes, [7 * size**exponent for size in sizes]) == pytest.approx(exponent)


@pytest.mark.parametrize(("sizes", "costs"), [([100], [1.0]), ([100, 100], [1.0, 2.0]), ([100, 300], [0.0, 1.0])])
def test_growth_of_too_little_is_refused(sizes: list[float], costs: list[float]) -> None:
    with pytest.raises(ValueError, match="at least two different sizes"):
        growth_exponent(sizes, costs)


def test_spread_is_largest_over_smallest() -> None:
    assert spread([2.0, 4.0, 3.0]) == 2.0
    assert spread([0.0, 4.0]) == math.inf


def test_fairness_is_one_for_equal_shares_and_least_where_one_has_all() -> None:
    assert fairness([3, 3, 3]) == pytest.approx(1)
    assert fairness([5, 0, 0, 0, 0]) == pytest.approx(1 / 5)
    with pytest.raises(ValueError, match="no shares"):
        fairness([0, 0])


def test_what_one_of_each_kind_costs_is_found() -> None:
    rows = [(1, 10, 0), (2, 5, 1), (1, 0, 30), (4, 4, 4)]
    costs = [3 * a + 0.5 * b + 0.25 * c for a, b, c in rows]
    assert proportions(rows, costs) == pytest.approx([3, 0.5, 0.25])


def test_no_kind_costs_less_than_nothing() -> None:
    """The second kind would have a price below zero; without it the first one fits as well as it can."""
    assert proportions([(1, 0), (1, 1), (1, 2)], [1.2, 1.0, 0.8])[1] == 0.0


def test_a_fit_of_too_few_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="a row at least for each kind"):
        proportions([(1, 2)], [1.0])
    with pytest.raises(ValueError, match="same counts"):
        proportions([(1, 2), (2, 4)], [1.0, 2.0])
