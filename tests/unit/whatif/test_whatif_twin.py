"""The twin of a site: its plan's settings, the scenarios, and agreement with the proof where that has an answer."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sitectl.output import whatif
from stacks.plan.site_plan import SitePlan, plan_file, plan_values
from stacks.whatif.deployment import served_of, tiers_of
from stacks.whatif.losses import losses_of
from stacks.whatif.outcome import ModelOutcome
from stacks.whatif.refusal import NoScenarioError
from stacks.whatif.scenario import WORST, Scenario
from stacks.whatif.simulation import ServedModel
from stacks.whatif.steps import step_times
from stacks.whatif.twin import GONE_S, MOST_REPLICAS, outcome_of
from tests.unit.stacks.site_examples import prod as plain_site

pytestmark = [pytest.mark.row("opening 12", "004.20"), pytest.mark.simulations]

ROOT = Path(__file__).parents[3]
QWEN, GLM = "qwen3-32b", "glm-5-1"


def calm() -> dict[str, Any]:
    """The reference site at loads that leave room for one replica less, whole prompts in a step, and no preemption."""
    document: dict[str, Any] = plain_site()
    for model, rate in ((GLM, 0.5), (QWEN, 2.0)):
        document["models"][model]["load"]["requests_per_s"] = rate
        for key in ("long_prefill_token_threshold", "priority"):
            document["models"][model]["server"].pop(key, None)
    return document


@pytest.fixture(scope="module")
def prod() -> SitePlan:
    return plan_values(calm(), "Pulumi.prod.yaml")


def changed(**changes: Any) -> SitePlan:
    """The reference site with other keys of qwen3-32b."""
    document = calm()
    document["models"] = {QWEN: document["models"][QWEN] | changes}
    document["tenants"] = {"search": document["tenants"]["search"] | {"models": [QWEN]}}
    return plan_values(document, "Pulumi.prod.yaml")


def simulated(plan: SitePlan, model: str = QWEN, **scenario: Any) -> ModelOutcome:
    return outcome_of(plan, Scenario(**scenario), models=(model,)).models[0]


def as_served(plan: SitePlan, model: str) -> ServedModel:
    revision = plan.models[model].stable
    return served_of(plan, revision, step_times(revision.proof.case.roofline, 1), tiers_of(plan, model, {}))


def value(outcome: ModelOutcome, key: str, tier: int = 0) -> float:
    return outcome.last.by_tier[tier].figures[key].value


def test_a_lost_gpu_takes_all_its_slices() -> None:
    """Seven replicas of a 1g.18gb at most; and a slice is no GPU in the report."""
    plan = plan_file(ROOT / "tests" / "fixtures" / "sites" / "valid" / "slices.yaml")
    _, losses = losses_of(plan, Scenario(lose_gpus=1))
    assert {name: lost.for_good for name, lost in losses.items()} == {"chat": 1, "embed": 3, "rerank": 2}
    report = whatif.text(outcome_of(plan, Scenario(), models=("embed",)))
    assert "3 x TP1 = 3 slices of h200-sxm/1g.18gb" in report


def test_a_served_model_is_what_the_plan_says(prod: SitePlan) -> None:
    for name, model in prod.models.items():
        settings = model.stable.settings
        served = as_served(prod, name)
        case = model.stable.proof.case
        assert (served.replicas, served.ranks, served.envoys) == (case.replicas, case.layout.data, 3)
        assert served.most_held == 2 * settings["max_num_queued_reqs"].number
        assert served.most_parallel == settings["gateway_parallel_requests"].value
        assert served.rank.slots == settings["max_num_seqs"].value
        assert served.rank.batched_tokens == settings["max_num_batched_tokens"].value
        assert served.rank.cache_tokens == settings["kv_blocks"].whole * 16
        assert served.picking.shedding_threshold == settings["picker_shedding_threshold"].value
        assert served.picking.pickers == 2, name


@pytest.mark.parametrize(("model", "hit"), [(GLM, 0.5), (QWEN, 0.3)])
def test_as_declared_it_agrees_with_the_proof(prod: SitePlan, model: str, hit: float) -> None:
    """Two ways to one answer: the proof's formulas with the declared hits, and simulated requests."""
    one_picker = plan_values(_with_pickers(1), "Pulumi.prod.yaml")
    outcome = simulated(one_picker, model)
    proven = prod.proofs[model].serving
    for key, band in (("ttft_p50", 1.35), ("ttft_p95", 1.5), ("itl_p50", 1.1), ("itl_p95", 1.15)):
        assert proven[key].value / band < value(outcome, key) < proven[key].value * band, key
    assert outcome.declared.kept
    assert value(outcome, "prefix_hit") == pytest.approx(100 * hit, abs=7)
    tokens = prod.proofs[model].serving["tokens_per_s_per_gpu"].value * prod.proofs[model].case.gpus
    assert outcome.declared.figures["answer_tokens_per_s"].value == pytest.approx(tokens, rel=0.1)


def _with_pickers(count: int) -> dict[str, Any]:
    document = calm()
    for model in document["models"].values():
        model.setdefault("pool", {})["pickers"] = count
    return document


def test_a_spike_breaks_targets_sheds_the_lower_tier_first_and_ends(prod: SitePlan) -> None:
    outcome = outcome_of(prod, Scenario(spike=20), models=(QWEN,))
    (model,) = outcome.models
    assert model.declared.kept
    assert outcome.verdict == "fails"
    urgent, jobs = model.last.by_tier
    assert (urgent.tier, urgent.priority, jobs.tier, jobs.priority) == ("interactive", 100, "batch", -10)
    assert urgent.figures["requests_per_s"].value == pytest.approx(20, rel=0.1)
    assert jobs.figures["shed"].value > 10 * urgent.figures["shed"].value
    assert urgent.figures["share_picker"].value == 0
    assert 0 < model.last.figures["recovery"].value < 300
    # The same bill, more answers.
    assert model.last.figures["hour"] == model.declared.figures["hour"]
    assert model.last.figures["per_million"].value < 0.3 * model.declared.figures["per_million"].value


@pytest.mark.exhaustive
@pytest.mark.row("001.02")
def test_room_that_is_kept_for_a_tier_keeps_its_first_tokens_early() -> None:
    """The lower tier is refused at the gateway in the place of the picker, and earlier."""

    def urgent_and_jobs(**pool: str) -> tuple[ModelOutcome, float]:
        document = calm()
        document["callers"] = {"decided_by": "gatekeeper"}
        document["models"][QWEN]["pool"] |= pool
        if pool:
            document["tiers"]["batch"]["admitted_below"] = 0.3
        scenario = Scenario(spike=20, tier_shares={"interactive": 0.05})
        (outcome,) = outcome_of(plan_values(document, "site.yaml"), scenario, models=(QWEN,)).models
        return outcome, value(outcome, "ttft_p95")

    (by_number, late), (by_pages, early) = urgent_and_jobs(), urgent_and_jobs(admission="pages")
    assert early < 0.5 * late
    assert value(by_number, "share_gateway", 1) == value(by_pages, "shed") == 0
    assert value(by_pages, "share_gateway", 1) > 10 * value(by_pages, "share_picker", 1)


def test_a_larger_spike_is_never_better(prod: SitePlan) -> None:
    """Beyond what single requests do to a percentile."""
    outcomes = [simulated(prod, spike=times) for times in (5, 10, 20, 40)]
    for key in ("ttft_p50", "ttft_p95", "itl_p50", "shed"):
        values = [value(outcome, key) for outcome in outcomes]
        assert all(later >= 0.9 * earlier for earlier, later in pairwise(values)), key
    recoveries = [outcome.last.figures["recovery"].value for outcome in outcomes]
    assert recoveries[0] < recoveries[-1]


@pytest.mark.exhaustive
def test_the_answer_is_the_seed_s(prod: SitePlan) -> None:
    assert simulated(prod, spike=5) == simulated(prod, spike=5)
    assert simulated(prod, spike=5) != simulated(prod, spike=5, seed=2)


@pytest.mark.row("002.12")
def test_a_lost_node_takes_its_replicas_until_they_start_elsewhere(prod: SitePlan) -> None:
    """hgx-3 has two of four replicas of qwen3-32b, and hgx-4 has room for them."""
    outcome = simulated(prod, lose_node="hgx-3")
    assert (outcome.declared.replicas, outcome.last.replicas) == (4, 2)
    assert outcome.last.kept
    assert 0 < value(outcome, "lost") < 3
    cold_s = prod.proofs[QWEN].start_s(2)
    assert cold_s == pytest.approx(120 + 2 * 34.32 / 0.6, rel=1e-3), "both read the one volume"
    assert GONE_S + cold_s - 1 < outcome.last.figures["recovery"].value < GONE_S + cold_s + 60


@pytest.mark.row("002.12")
def test_the_worst_node_is_the_one_whose_replica_finds_no_room(prod: SitePlan) -> None:
    outcome = outcome_of(prod, Scenario(lose_node=WORST))
    assert outcome.words == "hgx-1 is lost"
    glm, qwen = outcome.models
    assert (glm.last.replicas, qwen.last.replicas) == (1, 4)
    assert glm.last.figures["recovery"].value == float("inf")
    assert "recovery" not in qwen.last.figures
    assert qwen.last.by_tier == qwen.declared.by_tier


def test_without_replicas_everything_is_refused(prod: SitePlan) -> None:
    outcome = simulated(prod, lose_gpus=4)
    assert outcome.last.replicas == 0
    assert value(outcome, "share_nowhere") > 95
    assert not outcome.last.kept
    assert "per_million" not in outcome.last.figures


@pytest.mark.exhaustive
def test_fewer_gpus_never_wait_less(prod: SitePlan) -> None:
    outcomes = [simulated(prod, spike=5, lose_gpus=count) for count in (1, 2, 3)]
    for key in ("ttft_p95", "itl_p95"):
        values = [value(outcome, key) for outcome in outcomes]
        assert values == sorted(values), key


@pytest.mark.exhaustive
@pytest.mark.row("001.21")
def test_fewer_cached_prompts_and_longer_ones_wait_longer(prod: SitePlan) -> None:
    plain = simulated(prod, GLM)
    for scenario in ({"prefix_hit": 0.0}, {"long_prompts": True}):
        other = simulated(prod, GLM, **scenario)
        assert value(other, "ttft_p95") > 1.2 * value(plain, "ttft_p95"), scenario
    assert value(simulated(prod, GLM, prefix_hit=0.0), "prefix_hit") == 0
    assert value(simulated(prod, GLM, prefix_hit=0.9), "prefix_hit") > 1.4 * value(plain, "prefix_hit")


@pytest.mark.row("000.24")
def test_taking_replicas_in_turn_finds_fewer_prefixes(prod: SitePlan) -> None:
    aware, turns = simulated(prod), simulated(prod, in_turn=True)
    assert value(aware, "prefix_hit") > 1.5 * value(turns, "prefix_hit")


@pytest.mark.parametrize(
    ("catalogue", "layout", "ranks"),
    [
        ("glm-5.1-fp8", {"tensor": 4, "data": 2, "expert_parallel": True}, 2),
        ("llama-3.3-70b", {"tensor": 2, "pipeline": 2}, 1),
    ],
)
def test_each_data_parallel_rank_is_a_scheduler_and_stages_are_one(
    catalogue: str, layout: dict[str, Any], ranks: int
) -> None:
    load = {"requests_per_s": 1.0, "prompt_tokens": {"p50": 2000, "p95": 8000}}
    plan = changed(catalogue=catalogue, server={"replicas": 2, "layout": layout}, load=load, slo={"itl_p95_ms": 100})
    model = plan.models[QWEN].stable
    served = as_served(plan, QWEN)
    assert served.ranks == ranks
    assert served.rank.cache_tokens == pytest.approx(model.settings["kv_blocks"].whole * 16 / ranks, abs=1)
    proven = model.proof.serving["itl_p50"].value
    assert proven / 1.25 < value(simulated(plan), "itl_p50") < proven * 1.25


@pytest.mark.row("opening 1")
def test_targets_are_judged_at_the_end_of_the_band_that_decides() -> None:
    """The slow end where they are kept, the fast one where they are missed."""

    def under(target_ms: float) -> ModelOutcome:
        server = {"layout": {"tensor": 1}, "replicas": 4}
        return simulated(changed(slo={"ttft_p95_ms": target_ms}, server=server))

    ttft_ms = max(tier.figures["ttft_p95"].value for tier in under(60_000).last.by_tier)
    judged = {4.0: ("holds", True, True), 1.2: ("uncertain", True, False), 0.9: ("uncertain", False, True)}
    for times, expected in judged.items():
        model = under(ttft_ms * times)
        assert model.end is not None
        assert (model.verdict, model.last.kept, model.end.kept) == expected, times
        slower = model.end.by_tier[0].figures["ttft_p95"].value > model.last.by_tier[0].figures["ttft_p95"].value
        assert slower == model.last.kept


def test_an_encoder_has_no_time_between_tokens() -> None:
    load = {"requests_per_s": 20, "prompt_tokens": {"p50": 300, "p95": 900}}
    plan = changed(catalogue="qwen3-embedding-8b", load=load, slo={"ttft_p95_ms": 500}, server={"replicas": 2})
    outcome = simulated(plan, spike=3)
    assert "itl_p95" not in outcome.last.by_tier[0].figures
    assert "per_million" not in outcome.last.figures
    answers = outcome.declared.figures["answer_tokens_per_s"]
    assert (answers.unit, answers.source) == ("answers/s", "answers / simulated time")
    assert answers.value == pytest.approx(20, rel=0.1)
    assert value(outcome, "ttft_p95") > 0


def test_a_model_without_a_load_is_skipped_and_one_without_targets_keeps_them() -> None:
    assert "load" in outcome_of(changed(load=None, slo=None), Scenario(spike=20)).skipped[QWEN]
    outcome = outcome_of(changed(slo=None), Scenario(spike=100))
    assert outcome.verdict != "fails"
    assert value(outcome.models[0], "shed") > 1


def test_tenants_share_a_model_equally_unless_set(prod: SitePlan) -> None:
    assert [(tier.name, tier.share) for tier in tiers_of(prod, QWEN, {})] == [("interactive", 0.5), ("batch", 0.5)]
    assert [tier.share for tier in tiers_of(prod, QWEN, {"batch": 0.8})] == pytest.approx([0.2, 0.8])
    assert [tier.name for tier in tiers_of(prod, QWEN, {"batch": 0.0})] == ["interactive"]
    assert [tier.name for tier in tiers_of(prod, GLM, {"batch": 0.8})] == ["interactive"]
    for shares in ({"batch": 0.5, "interactive": 0.8}, {"batch": 0.1, "interactive": 0.8}):
        with pytest.raises(NoScenarioError, match="shares of the tiers"):
            tiers_of(prod, QWEN, shares)


@pytest.mark.parametrize(
    ("scenario", "models", "what"),
    [
        ({}, ("qwen",), "no such model"),
        ({"lose_node": "hgx-9"}, (), "no such node"),
        ({"tier_shares": {"night": 0.5}}, (), "no such tier"),
    ],
)
def test_what_the_site_does_not_have_is_refused(
    prod: SitePlan, scenario: dict[str, Any], models: tuple[str, ...], what: str
) -> None:
    with pytest.raises(NoScenarioError, match=what) as caught:
        outcome_of(prod, Scenario(**scenario), models=models)
    assert caught.value.problem.got and caught.value.problem.allowed


def test_nodes_that_are_not_listed_cannot_be_lost() -> None:
    document = calm()
    document |= {"cluster": {"kubeconfig": "kubeconfig", "gpu": "h200-sxm"}, "addresses": {}}
    plan = plan_values(document, "Pulumi.prod.yaml")
    with pytest.raises(NoScenarioError, match="does not list its nodes") as caught:
        outcome_of(plan, Scenario(lose_node=WORST))
    assert "--lose-gpus" in caught.value.problem.fix


@pytest.mark.exhaustive
def test_a_part_of_a_large_model_answers_for_the_whole() -> None:
    """Rates are the whole's, latencies within a fifth of all replicas simulated."""
    document = calm()
    document |= {"cluster": {"kubeconfig": "kubeconfig", "gpu": "h200-sxm"}, "addresses": {}}
    document["tenants"] = {"search": document["tenants"]["search"] | {"models": [QWEN]}}
    large = document["models"][QWEN] | {"server": {"replicas": 2 * MOST_REPLICAS}}
    document["models"] = {QWEN: large | {"load": large["load"] | {"requests_per_s": 60}}}
    plan = plan_values(document, "Pulumi.prod.yaml")
    part = simulated(plan)
    assert part.declared.notes == ("24 of 48 replicas are simulated, with their part of the load",)
    assert part.declared.replicas == 48
    assert value(part, "requests_per_s") == pytest.approx(60, rel=0.06)
    whole = outcome_of(plan, Scenario(), models=(QWEN,), most_replicas=100).models[0]
    assert whole.declared.notes == ()
    for key in ("requests_per_s", "ttft_p50", "ttft_p95", "itl_p50", "itl_p95"):
        assert value(part, key) == pytest.approx(value(whole, key), rel=0.2), key
    tokens = [side.declared.figures["answer_tokens_per_s"].value for side in (part, whole)]
    assert tokens[0] == pytest.approx(tokens[1], rel=0.1)
