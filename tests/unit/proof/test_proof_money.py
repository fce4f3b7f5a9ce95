"""Costs: they sum to the bill, and the formula is the right way round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.facts.hardware import GPUS
from stacks.proof import money
from stacks.proof.case import Case
from stacks.proof.demand import Prices
from stacks.proof.layouts import Layout
from stacks.proof.proof import prove
from tests.unit.proof.proof_orders import CHAT, order

pytestmark = pytest.mark.row("001.34", "000.04")

PRICES = Prices(gpu_hour=2.5)
CASE = Case(order("qwen3-32b-fp8", load=CHAT), Layout(), 4)


def test_prices_by_kind_of_token_pay_the_bill() -> None:
    paid = money.costs(CASE, PRICES)
    fresh = CHAT.requests_per_s * CHAT.prompt_tokens.mean * 0.5
    answers = CHAT.requests_per_s * CHAT.answer_tokens.mean
    income = (fresh * paid.fresh + fresh * paid.cached + answers * paid.answer) * 3600 / 1e6
    assert income == pytest.approx(paid.hour)
    assert (2 * fresh + answers) * paid.blended * 3600 / 1e6 == pytest.approx(paid.hour)


def test_price_a_token_is_cost_over_throughput() -> None:
    """Price = hourly cost / (tokens per second x 3600); 4 GPUs at 2.50."""
    paid = money.costs(CASE, PRICES)
    rate = CHAT.requests_per_s * CHAT.answer_tokens.mean
    assert paid.hour == 10
    assert paid.output_only == pytest.approx(10 / (rate * 3600) * 1e6)


def test_cached_tokens_are_cheaper_than_fresh_and_answers_dearest() -> None:
    paid = money.costs(CASE, PRICES)
    assert 0 < paid.cached < paid.fresh / 5 < paid.answer
    none = money.costs(Case(order("qwen3-32b-fp8", load=replace(CHAT, prefix_hit=0.0)), Layout(), 4), PRICES)
    assert none.cached == 0


def test_idle_replicas_make_tokens_dearer() -> None:
    few, many = (money.costs(Case(order("qwen3-32b-fp8", load=CHAT), Layout(), count), PRICES) for count in (4, 8))
    assert many.blended == pytest.approx(2 * few.blended)


def test_power_is_on_the_bill_where_it_has_a_price() -> None:
    """A DGX H200 takes 10.2 kW at most, of which its GPUs take 5.6; at 0.25 a kilowatt-hour that is 2.55 an hour."""
    case = Case(order("glm-5.1-fp8", load=CHAT), Layout(tensor=8), 1)
    with_power = money.hourly(case, Prices(gpu_hour=2.5, power_kwh=0.25))
    assert with_power - money.hourly(case, PRICES) == pytest.approx(2.55)


def test_a_replica_of_some_gpus_pays_its_share_of_the_node() -> None:
    quarter = Case(order("qwen3-32b-fp8", load=CHAT), Layout(tensor=2), 1)
    power = money.hourly(quarter, Prices(gpu_hour=2.5, power_kwh=0.25)) - money.hourly(quarter, PRICES)
    assert power == pytest.approx(2.55 / 4)


@pytest.mark.parametrize("gpu", sorted(GPUS))
def test_a_node_takes_at_most_some_twice_what_its_gpus_take(gpu: str) -> None:
    """Makers give 1.4 (a GB200 tray) to 2.0 times (a DGX A100); a card without a node's figure counts alone."""
    kind = GPUS[gpu]
    assert 1 <= kind.billed_power_w / kind.power_w <= 2.1
    assert (kind.node_power_w is None) == (gpu in {"h100-pcie", "l4", "l40s", "mi300x"})


def test_cost_at_capacity_is_below_cost_at_the_load() -> None:
    cost = prove(order("qwen3-32b-fp8", replicas=4, load=CHAT, prices=PRICES)).cost
    assert 0 < cost["break_even_full"].value < cost["break_even"].value
    assert cost["input"].unit == "EUR/M tokens"
    assert prove(order("qwen3-32b-fp8", load=CHAT)).cost == {}
    assert set(prove(order("qwen3-32b-fp8", prices=PRICES)).cost) == {"hour"}
