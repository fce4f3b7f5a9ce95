"""The ends of a band: the same settings at another pace, and the verdict that follows from all three figures."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from stacks.facts.hardware import GPUS
from stacks.proof.batch import Scheduler
from stacks.proof.case import Case
from stacks.proof.demand import METRICS, PERCENTS, LatencyTarget, Load, Prices, Slo
from stacks.proof.ends import End, Ends
from stacks.proof.fixes import nearest, steadier
from stacks.proof.layouts import Layout
from stacks.proof.order import Order
from stacks.proof.proof import prove
from stacks.proof.serving import PATH_S, REQUEST_OVERHEAD_S, Steady
from stacks.proof.speculation import Speculation
from tests.unit.proof.proof_orders import CHAT, GENERATING, order

pytestmark = pytest.mark.row("opening 1", "001.03")

PACES = (0.4, 0.7, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0)
MODELS = ("qwen3-32b-fp8", "glm-5.1-fp8", "gpt-oss-120b", "nemotron-3-nano")
# Settings that no target moves, so that a verdict is one of targets alone.
SETTLED = order("qwen3-32b-fp8", load=CHAT, layout=Layout(), replicas=2, max_num_seqs=150, max_num_batched_tokens=8192)


def ends_of(asked: Order) -> Ends:
    return prove(asked).ends


def with_target(key: str, ms: float) -> Order:
    return replace(SETTLED, slo=Slo.of(**{key: ms}))


@pytest.mark.parametrize("name", MODELS)
def test_another_pace_is_another_unit_of_time(name: str) -> None:
    """An engine of half the speed under half the load does all the same, in twice the time; only way and request
    handling take as long as before, and an API server, which is left out."""
    case = prove(order(name, load=CHAT, replicas=2)).case
    pace, constant = 1.7, PATH_S + REQUEST_OVERHEAD_S
    slower = Case(replace(case.order, load=replace(CHAT, requests_per_s=CHAT.requests_per_s / pace)), case.layout, 2)
    here, there = (
        replace(side, engine=replace(side.engine, servers=0.0)) for side in (case.steady, End(slower, pace).steady)
    )
    for percent in PERCENTS:
        share = percent / 100
        first = here.ttft_quantile_s(share) - constant
        later = there.ttft_quantile_s(share) - constant
        assert later == pytest.approx(pace * first, rel=1e-3)
        assert there.itl_quantile_s(share) == pytest.approx(pace * here.itl_quantile_s(share), rel=1e-3)
    assert there.stable
    assert there.running == pytest.approx(here.running, rel=1e-3)


DRAFTS = Speculation(method="mtp", tokens=1, acceptance=0.8)


@pytest.mark.parametrize(
    ("name", "speculation"), [*((name, None) for name in MODELS), ("deepseek-v3", DRAFTS)], ids=[*MODELS, "drafts"]
)
def test_every_step_takes_so_many_times_as_long(name: str, speculation: Speculation | None) -> None:
    roofline = prove(order(name, speculation=speculation)).case.roofline
    for prefill, reach, decodes, context in ((0, 0, 8, 3000), (2048, 900, 0, 0), (9, 0, 40, 500)):
        slow, fast = (
            engine.step_s(prefill=prefill, reach=reach, decodes=decodes, context=context)
            for engine in (roofline.at(1.6), roofline)
        )
        assert slow == pytest.approx(1.6 * fast)


def test_settings_stay_as_they_are_derived() -> None:
    """A site's engine is not set up for the speed that it turns out to have."""

    def settings(engine: Scheduler) -> tuple[int, int, int, float]:
        return engine.slots, engine.batched_tokens, engine.stages, engine.context

    case = prove(order("glm-5.1-fp8", load=CHAT, slo=Slo.of(itl_p95_ms=60, ttft_p95_ms=6000), replicas=2)).case
    for pace in PACES:
        assert settings(End(case, pace).steady.engine) == settings(case.steady.engine)


def test_queues_grow_faster_than_steps() -> None:
    """Else multiplying the figure would do; of a load that keeps the replicas busy."""
    ends = ends_of(replace(SETTLED, load=replace(CHAT, requests_per_s=3.0)))
    figure = ends.case.steady.ttft_quantile_s(0.95)
    assert ends.slow.steady.ttft_quantile_s(0.95) > 1.2 * ends.band.high * figure


@pytest.mark.parametrize(
    "name", sorted(set(GENERATING) & {*MODELS, "deepseek-r1", "llama-3.1-8b", "qwen3-30b-a3b-fp8"})
)
@pytest.mark.parametrize("rate", [0.2, 1.0, 3.0])
def test_a_slower_pace_turns_no_miss_into_a_keep(name: str, rate: float) -> None:
    case = prove(order(name, load=replace(CHAT, requests_per_s=rate), replicas=2)).case
    at = [End(case, pace).steady for pace in PACES]
    figures = [steady.quantile_s(metric, percent / 100) for metric in METRICS for percent in PERCENTS for steady in at]
    for limit_s in sorted({figure * 1.01 for figure in figures if figure < math.inf})[::5]:
        for metric in METRICS:
            target = LatencyTarget(metric=metric, percent=95, ms=limit_s * 1e3)
            kept = [steady.stable and steady.keeps(target) for steady in at]
            assert all(fast or not slow for fast, slow in pairwise(kept)), (target, kept)
    stable = [steady.stable for steady in at]
    assert stable == sorted(stable, reverse=True)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("percent", [50, 95])
def test_a_target_is_judged_at_within_and_beyond_the_band(metric: str, percent: int) -> None:
    key, target = f"{metric}_p{percent}_ms", LatencyTarget(metric=metric, percent=percent, ms=0.0)  # type: ignore[arg-type]
    ends = ends_of(SETTLED)
    fast, figure, slow = (1e3 * end.steady.figure_s(target) for end in (ends.fast, ends.nominal, ends.slow))
    assert fast < 0.8 * figure < figure < 0.8 * slow
    judged = {
        slow * 1.02: ("holds", True),
        slow * 0.98: ("uncertain", True),
        figure * 1.02: ("uncertain", True),
        figure * 0.98: ("uncertain", False),
        fast * 1.02: ("uncertain", False),
        fast * 0.98: ("fails", False),
    }
    for ms, expected in judged.items():
        proof = prove(with_target(key, ms))
        assert (proof.verdict, proof.holds) == expected, ms
        assert [doubt.target.key for doubt in proof.ends.doubts if doubt.target] == [key] * (expected[0] != "holds")


def test_a_doubt_has_figure_target_and_range() -> None:
    ends = ends_of(SETTLED)
    fast, figure, slow = (1e3 * end.steady.ttft_quantile_s(0.95) for end in (ends.fast, ends.nominal, ends.slow))
    (doubt,) = ends_of(with_target("ttft_p95_ms", 1.1 * figure)).doubts
    assert doubt.text == (
        f"TTFT p95 is {figure:,.0f} ms; target {1.1 * figure:,.0f} ms; {figure_text(fast)} to {figure_text(slow)} ms "
        "over the band"
    )


def figure_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def test_an_overload_is_judged_as_a_missed_target() -> None:
    ends = ends_of(SETTLED)
    fast, carried, slow = (end.capacity_requests_per_s for end in (ends.fast, ends.nominal, ends.slow))
    assert slow < 0.9 * carried < carried < 0.9 * fast
    judged = {0.95 * slow: "holds", 1.05 * slow: "uncertain", 1.05 * carried: "uncertain", 1.05 * fast: "fails"}
    for rate, verdict in judged.items():
        proof = prove(replace(SETTLED, load=replace(CHAT, requests_per_s=rate)))
        assert proof.verdict == verdict
        for doubt in proof.ends.doubts:
            assert doubt.kind == "overload"
            assert " requests/s over the band" in doubt.text


def test_what_does_not_fit_fails_at_any_pace() -> None:
    """Memory is no matter of speed."""
    proof = prove(order("glm-5.1-fp8", "l4", load=CHAT, gpus=1, one_node=True))
    assert proof.verdict == "fails"
    assert proof.ends.doubts == proof.case.fit_problems != []


def test_without_a_load_nothing_is_uncertain() -> None:
    assert prove(order("qwen3-32b-fp8", replicas=2)).verdict == "holds"


@pytest.mark.parametrize("name", MODELS)
def test_the_fewest_replicas_at_an_end_keep_the_targets_there_and_one_less_does_not(name: str) -> None:
    slo = Slo.of(ttft_p95_ms=8000, itl_p95_ms=150)
    asked = order(name, load=replace(CHAT, requests_per_s=6.0), slo=slo, replicas=16)
    proof = prove(asked)
    figure = proof.sizing["needed_replicas"]
    assert figure.span is not None
    for end in (proof.ends.fast, proof.ends.slow):
        needed = end.replicas

        def kept(replicas: int, engine: Scheduler = end.steady.engine) -> bool:
            return Steady(engine, proof.case.steady.load, replicas * proof.case.layout.data).within(slo)

        assert needed is not None
        assert kept(needed)
        assert needed == 1 or not kept(needed - 1)
    fewest = (figure.span.fast or 0, figure.value, figure.span.slow or 0)
    assert fewest == (proof.ends.fast.replicas, proof.ends.nominal.replicas, proof.ends.slow.replicas)
    assert fewest[0] <= fewest[1] <= fewest[2] > fewest[0]


def test_a_target_that_an_idle_replica_misses_is_kept_by_no_number() -> None:
    assert ends_of(with_target("itl_p50_ms", 1.0)).slow.replicas is None


def test_figures_that_decisions_hang_on_have_their_range() -> None:
    proof = prove(replace(SETTLED, slo=Slo.of(ttft_p95_ms=6000), prices=Prices(gpu_hour=3.5)))
    figures, ends = proof.figures(), proof.ends
    more_is_slower = (
        "ttft_p95",
        "itl_p95",
        "tpot_p99",
        "ttft_mean",
        "needed_replicas",
        "utilisation",
        "break_even_full",
    )
    for key in (*more_is_slower, "capacity", "saturation"):
        figure = figures[key]
        assert figure.span is not None, key
        low, high = sorted((figure.span.fast or 0.0, figure.span.slow or 0.0))
        assert 0 < low <= figure.value <= high, key
        assert (figure.span.fast == low) == (key in more_is_slower), key
    assert figures["saturation"].span == ends.span(lambda end: proof.saturation_requests_per_s / end.pace)
    assert figures["capacity"].value == pytest.approx(ends.nominal.capacity_requests_per_s)
    assert figures["hour"].span is None


def test_a_figure_that_an_end_does_not_have_is_overload_there() -> None:
    near = ends_of(SETTLED).nominal.capacity_requests_per_s
    proof = prove(replace(SETTLED, load=replace(CHAT, requests_per_s=0.97 * near)))
    span = proof.serving["ttft_p95"].span
    assert span is not None and span.fast and span.slow is None
    assert span.words("ms").endswith(" ms to overload")


@pytest.mark.parametrize("key", ["ttft_p95_ms", "itl_p95_ms"])
@pytest.mark.parametrize("share", [0.9, 1.1])
def test_ways_to_hold_over_the_whole_band_do(key: str, share: float) -> None:
    figure = prove(SETTLED).serving[key.removesuffix("_ms")].value
    proof = prove(replace(SETTLED, max_num_seqs=None, slo=Slo.of(**{key: share * figure})))
    assert proof.verdict == "uncertain"
    ways = steadier(proof)
    assert ways
    for way in ways:
        assert prove(way.order).verdict == "holds", way.text
    assert any(f"raise {key} to " in way.text for way in ways)


def test_a_fix_of_a_refusal_holds_by_the_computed_figures() -> None:
    fast = 1e3 * ends_of(SETTLED).fast.steady.ttft_quantile_s(0.95)
    proof = prove(with_target("ttft_p95_ms", 0.9 * fast))
    assert proof.verdict == "fails"
    fixes = nearest(proof)
    assert fixes
    assert all(fix.proof.holds for fix in fixes)


def test_the_range_of_a_model_is_that_of_its_kind() -> None:
    """Bands differ by GPU and weights, and the ends with them."""
    load = Load(requests_per_s=0.2)
    wide = prove(order("gpt-oss-120b", "h100-sxm", load=load)).ends.band
    narrow = prove(order("gpt-oss-120b", "b200", load=load)).ends.band
    assert GPUS["h100-sxm"].family != GPUS["b200"].family
    assert wide.high / wide.low > narrow.high / narrow.low


def test_where_no_layout_keeps_a_target_by_its_figure_one_that_may_is_taken() -> None:
    """The fewest GPUs would be refused, and larger replicas are within their band."""
    asked = order("qwen3-32b-fp8", load=CHAT, replicas=2, simple=True, one_node=True)
    largest = prove(replace(asked, layout=Layout(tensor=8)))
    target_ms = largest.serving["ttft_p95"].value * 0.9
    proof = prove(replace(asked, slo=Slo.of(ttft_p95_ms=target_ms)))
    assert prove(replace(proof.order, layout=Layout())).verdict == "fails"
    assert (proof.verdict, proof.holds, proof.case.layout.tensor > 1) == ("uncertain", False, True)
