"""Steps that give several tokens: pieces as a client sees them, and agreement with the proof."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stacks.plan.site_plan import SitePlan, plan_values
from stacks.proof.demand import Spread
from stacks.proof.speculation import Speculation
from stacks.whatif.scenario import Scenario
from stacks.whatif.simulation import Outage, Run, ServedModel, Simulation
from stacks.whatif.tally import Counts, gap_quantile, quantile, together
from stacks.whatif.twin import outcome_of
from tests.unit.stacks.site_examples import prod
from tests.unit.whatif.workloads import Plain, served

pytestmark = [pytest.mark.row("opening 12", "001.22"), pytest.mark.simulations, pytest.mark.exhaustive]

NGRAM = {"method": "ngram", "tokens": 4, "acceptance": 0.6}
DRAFT = {"method": "draft", "catalogue": "qwen3-0.6b", "tokens": 3, "acceptance": 0.7}
MTP = {"method": "mtp", "tokens": 1, "acceptance": 0.85}
THREE = Speculation(method="ngram", tokens=3, acceptance=0.5)


def site(
    catalogue: str,
    tensor: int,
    speculative: dict[str, Any],
    rate: float,
    answers: tuple[int, int] = (400, 1000),
) -> SitePlan:
    """One replica of a model that drafts. answers: p50 and p95 of their tokens."""
    document = prod()
    load = {"requests_per_s": rate, "prompt_tokens": {"p50": 500, "p95": 1000}}
    load["answer_tokens"] = dict(zip(("p50", "p95"), answers, strict=True))
    server = {"replicas": 1, "layout": {"tensor": tensor}, "speculative": speculative}
    slo = {"ttft_p95_ms": 8000, "tpot_p95_ms": 100}
    document["models"] = {"chat": {"catalogue": catalogue, "server": server, "load": load, "slo": slo}}
    document["tenants"] = {"search": document["tenants"]["search"] | {"models": ["chat"]}}
    return plan_values(document, "Pulumi.prod.yaml")


@pytest.mark.parametrize(
    ("catalogue", "tensor", "speculative", "rate"),
    [
        ("qwen3-32b-fp8", 2, NGRAM, 0.05),
        ("qwen3-32b-fp8", 2, DRAFT, 0.05),
        ("glm-5.1-fp8", 8, MTP, 0.05),
        ("qwen3-32b-fp8", 2, NGRAM, 4.0),
        ("qwen3-32b-fp8", 2, DRAFT, 2.0),
        ("glm-5.1-fp8", 8, MTP, 0.5),
    ],
)
def test_as_declared_it_agrees_with_the_proof(
    catalogue: str, tensor: int, speculative: dict[str, Any], rate: float
) -> None:
    """Without a queue and with one; the time between two pieces is a step, and that of a token its part."""
    plan = site(catalogue, tensor, speculative, rate)
    outcome = outcome_of(plan, Scenario()).models[0]
    proven, figures = plan.proofs["chat"].serving, outcome.last.by_tier[0].figures
    assert outcome.last.kept
    assert figures["itl_p50"].value > 1.5 * figures["tpot_p50"].value
    bands = {"itl_p50": 1.05, "itl_p95": 1.05, "itl_p99": 1.15, "ttft_p50": 1.15, "ttft_p95": 1.15}
    bands |= {"tpot_p50": 1.05, "tpot_p95": 1.05, "tpot_p99": 1.08}
    for key, band in bands.items():
        assert proven[key].value / band < figures[key].value < proven[key].value * band, key
    tokens = proven["tokens_per_s_per_gpu"].value * plan.proofs["chat"].case.gpus
    assert outcome.last.figures["answer_tokens_per_s"].value == pytest.approx(tokens, rel=0.1)


@pytest.mark.parametrize("answers", [(8, 16), (16, 40), (32, 80)])
@pytest.mark.parametrize(
    "speculative", [NGRAM, MTP | {"method": "ngram"}, {"method": "ngram", "tokens": 8, "acceptance": 0.9}]
)
def test_the_last_step_of_a_short_answer_gives_more_than_is_left(
    speculative: dict[str, Any], answers: tuple[int, int]
) -> None:
    """A token of it takes longer than its part of a step, which the proof counts too."""
    plan = site("qwen3-32b-fp8", 2, speculative, 1.0, answers)
    proven, figures = plan.proofs["chat"].serving, outcome_of(plan, Scenario()).models[0].last.by_tier[0].figures
    assert figures["tpot_p50"].value == pytest.approx(proven["tpot_p50"].value, rel=0.07)
    assert figures["tpot_p95"].value == pytest.approx(proven["tpot_p95"].value, rel=0.09)


def with_drafts(model: ServedModel, speculation: Speculation | None) -> ServedModel:
    return replace(model, rank=replace(model.rank, speculation=speculation))


def run(model: ServedModel, source: Plain) -> Run:
    return Simulation(model, source, seed="1").run(400, drain_s=1e6)


def counted(model: ServedModel, source: Plain) -> Counts:
    return together(run(model, source).tally.counts[0])


BUSY = served(step_s=0.01, prompt_token_s=1e-5, slots=16, batched=2048)
SOURCE = Plain(rate=5.0, answer=Spread(100, 400))


def test_every_token_is_counted_and_comes_in_pieces_of_the_mean_size() -> None:
    counts = counted(with_drafts(BUSY, THREE), SOURCE)
    assert counts.ends["answered"] == counts.came
    assert counts.answer_tokens == pytest.approx(sum(arrival.answer for arrival in SOURCE.arrivals(400)))
    pieces = (counts.answer_tokens - counts.came) / counts.gaps.total()
    # The last piece of an answer may be smaller.
    assert 0.98 * THREE.per_step < pieces < THREE.per_step
    assert gap_quantile(counts.gaps, 0.5) == pytest.approx(0.01, rel=0.01)
    assert quantile(counts.answer_token_s, 0.5) == pytest.approx(0.01 / pieces, rel=0.05)
    # Of a short answer more depends on which drafts were accepted.
    assert quantile(counts.answer_token_s, 0.99) > 1.15 * quantile(counts.answer_token_s, 0.5)


def test_drafts_that_are_never_accepted_change_nothing_but_what_a_step_takes() -> None:
    for model in (BUSY, replace(BUSY, rank=replace(BUSY.rank, cache_tokens=2000))):
        refused = with_drafts(model, replace(THREE, acceptance=0.0))
        assert run(refused, SOURCE).tally.counts == run(model, SOURCE).tally.counts


def test_drafted_tokens_take_the_place_of_prompts_in_a_step() -> None:
    """Sixteen requests verify all 64 tokens of a step, so that prompts wait until one of them ends."""
    small = replace(BUSY, rank=replace(BUSY.rank, batched_tokens=64, slots=32))
    source = Plain(rate=8.0, answer=Spread(300, 301))
    plain, slow = counted(small, source), counted(with_drafts(small, replace(THREE, acceptance=0.0)), source)
    assert quantile(slow.first_s, 0.5) > 10 * quantile(plain.first_s, 0.5)


def test_a_request_that_is_thrown_out_goes_on_where_it_was() -> None:
    model = with_drafts(replace(BUSY, rank=replace(BUSY.rank, cache_tokens=2000)), THREE)
    simulation = Simulation(model, SOURCE, seed="1")
    done = simulation.run(400, drain_s=1e6)
    counts = together(done.tally.counts[0])
    assert done.tally.thrown_out > 10
    assert counts.ends["answered"] == counts.came
    assert counts.answer_tokens == pytest.approx(sum(arrival.answer for arrival in SOURCE.arrivals(400)), rel=0.01)
    for replica in simulation._replicas:
        for rank in replica.ranks:
            assert rank.cache.answers == pytest.approx(0, abs=1e-6)
            assert sum(rank._growth) == pytest.approx(0, abs=1e-9)


def test_a_lost_replica_comes_back_with_nothing_under_way() -> None:
    outage = Outage(begins_s=50, ends_s=100, replicas=(0,))
    simulation = Simulation(with_drafts(BUSY, THREE), SOURCE, seed="1", outages=(outage,))
    counts = together(simulation.run(200, drain_s=1e6).tally.counts[0])
    assert counts.ends["lost"] > 0
    for replica in simulation._replicas:
        for rank in replica.ranks:
            assert sum(rank._growth) == pytest.approx(0, abs=1e-9)
            assert rank._context == pytest.approx(0, abs=1e-6)


def test_the_fewer_drafts_are_accepted_the_longer_a_token_takes() -> None:
    times = []
    for acceptance in (0.8, 0.4, 0.1):
        plan = site("qwen3-32b-fp8", 2, NGRAM | {"acceptance": acceptance}, 2.0)
        times.append(outcome_of(plan, Scenario()).models[0].last.by_tier[0].figures["tpot_p50"].value)
    assert times[0] < 0.6 * times[1] < 0.6 * times[2]
