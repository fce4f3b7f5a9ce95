"""`advise`: the kinds of GPU that carry a load within its targets, the cheapest first."""

from __future__ import annotations

from pathlib import Path

import pytest

from sitectl.errors import Exit
from stacks.facts.hardware import GPUS
from stacks.plan.advice import PublicPrice, public_cost
from stacks.proof.demand import Load, Spread
from tests.unit.proof.proof_orders import order
from tests.unit.sitectl.sites_to_work_on import run

pytestmark = pytest.mark.row("001.34", "003.07", "001.08")

OFFERS = ("--offer", "l40s=1.1", "--offer", "b200=6.5", "--offer", "h100-sxm=2.5")


def test_every_kind_is_looked_at_and_the_sites_own_has_its_price(checkout_folder: Path) -> None:
    told = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", "--json").data["kinds"]
    assert {kind["gpu"] for kind in told} == set(GPUS)
    assert [kind["gpu"] for kind in told if kind["here"]] == ["h200-sxm"]
    assert [kind["gpu"] for kind in told if kind["per_hour"]] == ["h200-sxm"]


def test_the_cheapest_that_holds_comes_first(checkout_folder: Path) -> None:
    told = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", *OFFERS, "--json").data["kinds"]
    costs = [kind["per_hour"] for kind in told if kind["holds"]]
    assert len(costs) == 4
    assert costs == sorted(costs)
    # One GPU of 3.5 an hour and its share of 10.2 kW at 0.25 a kilowatt-hour on the site's own kind.
    (own,) = (kind for kind in told if kind["here"])
    assert own["per_hour"] == pytest.approx(own["gpus"] * (3.5 + own_power_kw() * 0.25))
    assert all(kind["figures"]["ttft_p95"]["value"] <= 6000 for kind in told)


def own_power_kw() -> float:
    return GPUS["h200-sxm"].billed_power_w / 1000


def test_a_dearer_offer_moves_down(checkout_folder: Path) -> None:
    """A price decides, not the order of the options."""
    cheap = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", "--offer", "h100-sxm=1").out
    dear = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", "--offer", "h100-sxm=9").out
    assert cheap.splitlines()[1].startswith("h100-sxm ")
    assert dear.splitlines()[1].startswith("h200-sxm (here) ")


def test_targets_and_load_of_the_options_replace_the_sites(checkout_folder: Path) -> None:
    asked = ("advise", "--site", "prod", "qwen3-32b", "--offer", "l4=0.8", "--requests-per-s", "0.2")
    loose = run(checkout_folder, *asked, "--slo", "ttft_p95_ms=20000", "--slo", "itl_p95_ms=400").out
    tight = run(checkout_folder, *asked, "--slo", "ttft_p95_ms=20000", "--slo", "itl_p95_ms=12").out
    assert "\nl4 " in loose
    assert "\nl4: no. ITL p95 is " in tight


def test_no_kind_that_holds_is_a_refusal_with_reasons(checkout_folder: Path) -> None:
    done = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", "--slo", "ttft_p95_ms=1", "--offer", "b200=6")
    assert done.status == Exit.REFUSED
    assert "no kind of GPU carries this load within its targets" in done.out
    assert "h200-sxm: no. " in done.out


def test_a_public_price_is_compared_at_the_same_load(checkout_folder: Path) -> None:
    asked = ("advise", "--site", "prod", "gpt-oss-120b", "--requests-per-s", "4", "--public")
    assert "% of what the public API costs for this load" in run(checkout_folder, *asked, "5/20").out
    assert " times what the public API costs for this load" in run(checkout_folder, *asked, "0.001/0.002").out


def test_what_a_public_api_costs() -> None:
    """One request per second of 1,000 + 100 tokens at 2 and 10 per million: 0.003 each, 10.8 per hour."""
    load = Load(requests_per_s=1.0, prompt_tokens=Spread(1000, 1000), answer_tokens=Spread(100, 100))
    assert public_cost(order("qwen3-8b", load=load), PublicPrice(2.0, 10.0)) == pytest.approx(10.8)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (("gpt-oss-120x",), "has a model 'gpt-oss-120x'; did you mean 'gpt-oss-120b'?"),
        (("gpt-oss-120b", "--slo", "ttft_p59_ms=3"), "--slo: no target is called ttft_p59_ms"),
        (("gpt-oss-120b", "--slo", "ttft_p95_ms=3"), "--slo: a target needs a load"),
        (("gpt-oss-120b", "--public", "1/2"), "--public: a cost needs a load"),
        (("gpt-oss-120b", "--requests-per-s", "-3"), "--requests-per-s: requests_per_s: "),
        (("gpt-oss-120b", "--prompt", "long"), "--prompt: wants two numbers"),
        (("gpt-oss-120b", "--offer", "h300=3"), "--offer: unknown GPU h300"),
        (("gpt-oss-120b", "--offer", "l4=free"), "--offer: wants a name and a number above 0"),
        (("gpt-oss-120b", "--offer", "l4=inf"), "--offer: wants a name and a number above 0"),
        (("qwen3-32b", "--offer", "l4=1", "--offer", "l4=2"), "--offer: l4 is given twice"),
        (("qwen3-32b", "--public", "0/0"), "--public: wants two prices from 0, not both 0"),
        (("qwen3-32b", "--public=-1/2"), "--public: wants two prices from 0"),
        (("qwen3-32b", "--public", "nan/2"), "--public: wants two prices from 0"),
        (("qwen3-32b", "--public", "3"), "write them like 0.6/2.2"),
        (("qwen3-32b", "--prompt", "0/0"), "error: --prompt: prompt_tokens.p50: "),
        (("qwen3-32b", "--answer", "90/40"), "error: --answer: answer_tokens: "),
        (("qwen3-32b", "--prefix-hit", "1.5"), "error: --prefix-hit: prefix_hit: "),
    ],
)
def test_wrong_options_say_what_is_allowed(checkout_folder: Path, more: tuple[str, ...], error: str) -> None:
    done = run(checkout_folder, "advise", "--site", "prod", *more)
    assert done.status == Exit.USAGE
    assert error in done.err
    assert "fix: " in done.err
