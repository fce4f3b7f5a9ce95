"""`advise`: the kinds of GPU that carry a load within its targets, the cheapest first."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sitectl.shell.errors import Exit
from stacks.facts.hardware import GPUS, slice_name
from stacks.facts.mig import slices_of
from stacks.plan.advice import PublicPrice, public_cost
from stacks.proof.demand import Load, Spread
from tests.unit.proof.proof_orders import order
from tests.unit.sitectl.sites_to_work_on import ROOT, make_checkout, run

pytestmark = pytest.mark.row("001.34", "003.07", "001.08")

ENCODED = ("--requests-per-s", "9", "--prompt", "300/900")
OFFERS = ("--offer", "l40s=1.1", "--offer", "b200=6.5", "--offer", "h100-sxm=2.5")


def test_every_kind_is_looked_at_and_the_sites_own_has_its_price(checkout_folder: Path) -> None:
    reported = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", "--json").data["kinds"]
    assert {kind["gpu"] for kind in reported} == set(GPUS)
    assert [kind["gpu"] for kind in reported if kind["here"]] == ["h200-sxm"]
    assert [kind["gpu"] for kind in reported if kind["per_hour"]] == ["h200-sxm"]


def test_the_cheapest_that_holds_comes_first(checkout_folder: Path) -> None:
    reported = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", *OFFERS, "--json").data["kinds"]
    costs = [kind["per_hour"] for kind in reported if kind["verdict"] != "fails"]
    assert len(costs) == 4
    assert costs == sorted(costs)
    # One GPU of 3.5 an hour and its share of 10.2 kW at 0.25 a kilowatt-hour on the site's own kind.
    (own,) = (kind for kind in reported if kind["here"])
    assert own["per_hour"] == pytest.approx(own["gpus"] * (3.5 + own_power_kw() * 0.25))
    assert all(kind["figures"]["ttft_p95"]["value"] <= 6000 for kind in reported)


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
        (
            ("bge-m3", *ENCODED, "--prefix-hit", "0.5"),
            "error: --prefix-hit: is of cached prompts, and bge-m3 keeps no",
        ),
        (("bge-m3", *ENCODED, "--answer", "9/90"), "error: --answer: is of tokens, and bge-m3 writes no tokens"),
        (("bge-m3", *ENCODED, "--slo", "itl_p95_ms=9"), "error: --slo itl_p95_ms: is of tokens, and bge-m3 writes no"),
        (("bge-m3", "--requests-per-s", "9", "--prefix-hit", "0.5"), "; --prefix-hit: is of cached prompts"),
        (("multilingual-e5-large", "--requests-per-s", "9"), "error: --prompt: has no prompt_tokens, whose default, "),
    ],
)
def test_wrong_options_say_what_is_allowed(checkout_folder: Path, more: tuple[str, ...], error: str) -> None:
    done = run(checkout_folder, "advise", "--site", "prod", *more)
    assert done.status == Exit.USAGE
    assert error in done.err
    assert "fix: " in done.err


def test_without_a_site_its_sites_are_named_or_the_only_one_is_taken(tmp_path: Path, checkout_folder: Path) -> None:
    several = run(checkout_folder, "advise", "qwen3-8b")
    assert several.status == Exit.USAGE
    assert "--site: is missing, and there are several sites" in several.err
    assert "allowed: lab, prod" in several.err
    own = make_checkout(tmp_path / "own", sites=())
    run(own, "init", "berlin", "--model", "chat=qwen3-32b-fp8")
    assert "h200-sxm (here)" in run(own, "advise", "qwen3-8b").out


def test_the_verdict_counts_kinds_and_gpus(checkout_folder: Path) -> None:
    asked = ("advise", "--site", "prod", "gpt-oss-120b", "--requests-per-s", "4")
    alone, others = run(checkout_folder, *asked).out, run(checkout_folder, *asked, *OFFERS, "--public", "5/20").out
    assert " x h200-sxm: the only kind with a price that works; the others have no price" in alone
    assert ": the least cost per hour of 4 kinds with a price that work" in others
    assert others.splitlines()[-2].endswith(" EUR/h")


@pytest.mark.slow
@pytest.mark.row("001.22", "002.08", "003.03")
def test_drafts_can_be_asked_for_before_they_are_written(checkout_folder: Path) -> None:
    asked = ("advise", "--site", "prod", "glm-5-1", "--offer", "b200=6", "--json")
    plain, drafting = (
        run(checkout_folder, *asked, *more).data["kinds"] for more in ((), ("--speculative", "mtp:1:0.85"))
    )
    assert [kind["figures"]["tokens_per_step"]["value"] for kind in drafting] == pytest.approx([1.85, 1.85])
    slow, fast = (
        next(kind for kind in kinds if kind["here"])["figures"]["decode_alone"]["value"] for kinds in (plain, drafting)
    )
    assert fast < slow
    text = run(checkout_folder, *asked[:-1], "--speculative", "mtp:1:0.85").out
    assert "assumed: mtp drafts 1 per step, 1.85 tokens come of it if 85 % are accepted" in text
    draft = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", "--speculative", "draft=qwen3-0.6b:2:0.7").out
    assert "assumed: draft drafts 2 per step" in draft


@pytest.mark.row("002.08", "003.03")
def test_quantised_weights_can_be_asked_for(checkout_folder: Path) -> None:
    asked = ("advise", "--site", "prod", "llama-3.3-70b", "--requests-per-s", "1", "--offer", "a100-80gb=2", "--json")
    reported = run(checkout_folder, *asked, "--quantization", "fp8_per_tensor").data["kinds"]
    by_gpu = {kind["gpu"]: kind for kind in reported}
    assert by_gpu["h200-sxm"]["figures"]["weights_per_gpu"]["value"] < 75
    assert "no FP8 units" in by_gpu["a100-80gb"]["why_not"]
    text = run(checkout_folder, *asked[:-1], "--quantization", "fp8_per_tensor").out
    assert "assumed: weights are quantised to fp8; what answers lose is not proven" in text


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--speculative", "mtp:1:0.85"), "names no draft_layers"),
        (("--speculative", "mtp:1"), "wants METHOD:K:ACCEPTANCE"),
        (("--speculative", "ngram:three:0.5"), "wants a whole number and a share"),
        (("--speculative", "ngram:3:1.5"), "acceptance: "),
        (("--speculative", "guess:3:0.5"), "method: "),
        (("--speculative", "draft:3:0.5"), "method and catalogue do not go together"),
        (("--speculative", "draft=llama-3.2-1b:3:0.5"), "the vocabulary of"),
        (("--speculative", "draft=no-such:3:0.5"), "is not in the catalogue"),
        (("--quantization", "fp8_per_tensor"), "are quantised already (fp8-block)"),
        (("--quantization", "awq"), "wants the name of a method"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error_with_the_way_out(
    checkout_folder: Path, options: tuple[str, ...], what: str
) -> None:
    done = run(checkout_folder, "advise", "--site", "prod", "qwen3-32b", *options)
    assert done.status == Exit.USAGE
    assert what in done.err
    assert "fix: " in done.err


def test_none_asks_without_what_the_site_has(checkout_folder: Path) -> None:
    asked = ("advise", "--site", "prod", "qwen3-32b")
    bare = run(checkout_folder, *asked, "--speculative", "none", "--quantization", "none").out
    assert bare == run(checkout_folder, *asked).out


@pytest.fixture(scope="module")
def sliced_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the site `rack`, whose encoder is on slices of an H200."""
    folder = make_checkout(tmp_path_factory.mktemp("sliced") / "own", sites=())
    shutil.copy(ROOT / "tests/fixtures/sites/valid/slices.yaml", folder / "Pulumi.rack.yaml")
    return folder


@pytest.mark.row("000.12")
def test_a_model_on_a_slice_is_compared_with_all_slices_of_its_gpu_and_the_whole_one(sliced_folder: Path) -> None:
    own = [slice_name("h200-sxm", profile) for profile in slices_of("h200-sxm")]
    reported = run(sliced_folder, "advise", "--site", "rack", "embed", "--json").data["kinds"]
    assert {kind["gpu"] for kind in reported} == {*own, *GPUS}
    assert [kind["gpu"] for kind in reported if kind["here"]] == ["h200-sxm/1g.18gb"]
    hours = {kind["gpu"]: kind["per_hour"] for kind in reported if kind["per_hour"]}
    assert hours.keys() == {*own, "h200-sxm"}
    assert hours["h200-sxm/1g.18gb"] == pytest.approx(hours["h200-sxm"] / 7)


@pytest.mark.row("000.12")
def test_what_a_slice_counts_as_and_costs_is_stated_where_one_is_compared(sliced_folder: Path) -> None:
    text = run(sliced_folder, "advise", "--site", "rack", "embed").out
    assert "\na slice (MIG) counts as one GPU here, and costs its part of a whole one, 1/7 for 1g.18gb, 1/4 for" in text
    assert "take 1 x h200-sxm/1g.18gb: the least cost per hour of 7 kinds with a price that work" in text
    assert "slice" not in run(sliced_folder, "advise", "--site", "rack", "chat").out


@pytest.mark.row("000.12")
def test_an_offer_of_the_whole_gpu_is_the_price_of_its_slices_too(sliced_folder: Path) -> None:
    asked = ("advise", "--site", "rack", "embed", "--offer", "l4=0.8", "--offer", "h200-sxm=70", "--json")
    reported = run(sliced_folder, *asked).data["kinds"]
    hours = {kind["gpu"]: kind["per_hour"] for kind in reported}
    assert hours["h200-sxm/1g.18gb"] == pytest.approx(hours["h200-sxm"] / 7) and hours["h200-sxm"] > 70
    assert reported[0]["gpu"] == "l4"


@pytest.fixture(scope="module")
def free_folder(tmp_path_factory: pytest.TempPathFactory, sliced_folder: Path) -> Path:
    """The same site without prices."""
    folder = make_checkout(tmp_path_factory.mktemp("free") / "own", sites=())
    lines = (sliced_folder / "Pulumi.rack.yaml").read_text().splitlines()
    (folder / "Pulumi.rack.yaml").write_text("\n".join(line for line in lines if "prices:" not in line))
    return folder


@pytest.mark.row("000.12")
def test_without_prices_a_slice_counts_as_its_part_of_a_gpu(free_folder: Path) -> None:
    """Four slices are not the fewest: two of a larger slice, or whole GPUs, would do as well."""
    asked = ("advise", "--site", "rack", "embed")
    small, large = (run(free_folder, *asked, "--requests-per-s", rate).out for rate in ("1", "400"))
    assert "take 1 x h200-sxm/1g.18gb: the fewest GPUs, with a slice counted as a part of one; give prices" in small
    assert "take 4 x h200-sxm/1g.18gb: the fewest GPUs, with a slice" in large


def test_without_a_load_nothing_is_recommended(free_folder: Path) -> None:
    """Each kind that the weights fit on holds the model, so the smallest of them says nothing."""
    asked = run(free_folder, "advise", "--site", "rack", "chat")
    assert asked.status == Exit.OK
    assert "no recommendation: no load is declared" in asked.out
    assert "add load.requests_per_s to the model in the site, or --requests-per-s" in asked.out
    assert "\ntake " not in asked.out


def test_what_is_taken_is_compared_with_kinds_that_hold_as_it_does(checkout_folder: Path) -> None:
    """At this target an H100 PCIe has half as many GPUs, and holds at the fast end of its band alone."""
    load = ("--requests-per-s", "2")
    asked = ("advise", "--site", "prod", "qwen3-32b", *load, "--slo", "itl_p95_ms=20", "--slo", "ttft_p95_ms=20000")
    alone = run(checkout_folder, *asked).out
    assert "take 8 x h200-sxm: the only kind with a price that holds by the computed figures; the others" in alone
    dear = run(checkout_folder, *asked, "--offer", "h100-pcie=0.1", "--offer", "b200=9").out
    assert (
        "take 8 x h200-sxm: the least cost per hour of 2 kinds with a price that hold by the computed figures" in dear
    )
