"""A site's own step times: found again out of its metrics, and what the proof makes of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.calibration import FEWEST_PERIODS, Period, measured_of, pace_of, prompt_pace_of
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.proof.serving import PATH_S, Steady
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 29")

MODEL = "qwen3-32b"
UNMEASURED = plan_values(prod(), "site.yaml")
KEYS = {
    "pace": 1.2,
    "low": 1.1,
    "high": 1.32,
    "periods": 96,
    "gpu": "h200-sxm",
    "engine": "0.32",
    "settings": UNMEASURED.models[MODEL].stable.spec.digest,
    "until": "2026-11-30",
}


def planned(**keys: Any) -> SitePlan:
    given = {f"models.{MODEL}.calibration": KEYS | keys} if keys or keys == {} else {}
    return plan_values(changed(prod(), given), "site.yaml")


def stable(plan: SitePlan) -> RevisionPlan:
    return plan.models[MODEL].stable


def metrics_at(pace: float, share: float, replicas: int = 4) -> Period:
    """What an engine of this pace measures of a share of the declared load, with prompts that are longer."""
    proof = stable(UNMEASURED).proof
    load = proof.order.load
    assert load is not None
    prompts = load.prompt_tokens
    sent = replace(
        load,
        requests_per_s=share * load.requests_per_s,
        prompt_tokens=replace(prompts, p50=1.5 * prompts.p50, p95=1.5 * prompts.p95),
        prefix_hit=0.1,
        common_prefix=0.0,
    )
    engine = proof.case.steady.engine
    steady = Steady(replace(engine, roofline=engine.roofline.at(pace)), sent, replicas)
    return Period(
        requests_per_s=sent.requests_per_s,
        prompt_tokens=sent.prompt_tokens.mean,
        answer_tokens=load.answer_tokens.mean,
        prefix_hit=0.1,
        replicas=replicas,
        itl_s=steady.itl_mean_s,
        ttft_s=steady.ttft.total - PATH_S,
    )


@pytest.mark.parametrize("pace", [0.7, 1.0, 1.6])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_pace_is_what_explains_the_time_between_tokens_at_any_load(pace: float, share: float) -> None:
    """Also where the proof counts with a pace already."""
    period = metrics_at(pace, share)
    assert pace_of(stable(UNMEASURED).proof, period) == pytest.approx(pace, rel=1e-3)
    assert pace_of(stable(planned()).proof, period) == pytest.approx(pace, rel=1e-3)
    assert prompt_pace_of(stable(UNMEASURED).proof, period) == pytest.approx(pace, rel=1e-3)


def test_what_no_pace_explains_is_no_pace() -> None:
    """The last one is what a slower engine measures than one that keeps up with so many requests."""
    assert pace_of(stable(UNMEASURED).proof, replace(metrics_at(1.0, 0.5), itl_s=0.001)) is None
    assert pace_of(stable(UNMEASURED).proof, replace(metrics_at(1.0, 0.5), itl_s=10.0)) is None
    overloaded = replace(metrics_at(1.0, 0.5), requests_per_s=7.0, itl_s=0.5)
    assert pace_of(stable(UNMEASURED).proof, overloaded) is None
    assert prompt_pace_of(stable(UNMEASURED).proof, replace(metrics_at(1.0, 0.5), ttft_s=math.nan)) is None


def test_a_band_has_nine_of_ten_periods_and_is_never_narrower_than_what_is_known() -> None:
    paces = [1 + 0.01 * number for number in range(-20, 21)]
    measured = measured_of(paces)
    assert measured is not None
    assert (measured.pace, measured.periods) == (1.0, 41)
    assert (measured.low, measured.high) == pytest.approx((0.82, 1.18))
    alike = measured_of([2.0] * FEWEST_PERIODS)
    assert alike is not None
    assert (alike.low, alike.high) == pytest.approx((1.9, 2.1))
    assert measured_of(paces[: FEWEST_PERIODS - 1]) is None
    # GPUs that are slower at prompts than at tokens.
    of_prompts = measured_of([1.0] * FEWEST_PERIODS, [1.3, 1.4, 9.0])
    assert of_prompts is not None
    assert (of_prompts.low, of_prompts.pace, of_prompts.high) == pytest.approx((0.95, 1.0, 1.4))


def test_the_proof_counts_with_the_sites_own_times() -> None:
    before, after = stable(UNMEASURED).proof, stable(planned()).proof
    assert after.speed["decode_alone"].value == pytest.approx(1.2 * before.speed["decode_alone"].value, rel=1e-3)
    assert after.ends.band.low == pytest.approx(1.1 / 1.2)
    assert after.ends.band.high == pytest.approx(1.32 / 1.2)
    # The slow end is of the pace that was measured there, however it is put together.
    slow = stable(planned(pace=1.32, high=1.32)).proof.ends.nominal
    assert after.ends.slow.steady.itl_mean_s == pytest.approx(slow.steady.itl_mean_s, rel=1e-6)
    assert after.ends.fast.capacity_requests_per_s > after.ends.slow.capacity_requests_per_s
    text = stable(planned()).text()
    assert "steps took x 0.92 to 1.10 as long in 96 periods of this site; median x 1.2 of computed" in text


@pytest.mark.parametrize("other", [{"gpu": "h100-sxm"}, {"engine": "0.31"}, {"engine": None}, {"settings": "0123abcd"}])
def test_times_of_another_gpu_or_engine_do_not_count(other: dict[str, Any]) -> None:
    plan = planned(**other)
    assert stable(plan).proof.order.measured is None
    (warning,) = [problem for problem in plan.warnings if problem.key == f"models.{MODEL}.calibration"]
    assert f"now h200-sxm, vLLM 0.32, settings {KEYS['settings']}" in warning.got
    assert not [problem for problem in planned().warnings if problem.key == warning.key]


def test_another_checkpoint_or_drafts_have_no_times_yet() -> None:
    for change in ({"catalogue": "qwen3-30b-a3b-fp8"}, {"server": {"replicas": 4, "extra_args": ["--seed=7"]}}):
        changes = {f"models.{MODEL}.calibration": KEYS} | {f"models.{MODEL}.{key}": of for key, of in change.items()}
        assert stable(plan_values(changed(prod(), changes), "site.yaml")).proof.order.measured is None


def test_another_number_of_replicas_keeps_them_and_so_does_advice_for_the_same_gpu() -> None:
    changes = {f"models.{MODEL}.calibration": KEYS, f"models.{MODEL}.server.replicas": 5}
    order = stable(plan_values(changed(prod(), changes), "site.yaml")).proof.order
    assert order.measured is not None
    assert order.on("h200-sxm").measured == order.measured
    assert order.on("h100-sxm").measured is None


def test_a_pace_outside_its_own_band_is_refused() -> None:
    with pytest.raises(SiteError, match=r"pace 1\.2 is not between low 1\.25 and high 1\.32"):
        planned(low=1.25)


def test_a_canary_has_no_times_yet() -> None:
    canary = {"percent": 5, "server": {"extra_args": ["--seed=7"]}}
    given = {
        f"models.{MODEL}.calibration": KEYS,
        f"models.{MODEL}.canary": canary,
        "callers": {"decided_by": "gatekeeper"},
    }
    plan = plan_values(changed(prod(), given), "site.yaml")
    assert stable(plan).proof.order.measured
    assert [revision.proof.order.measured for revision in plan.revisions if revision.id.digest] == [None]
