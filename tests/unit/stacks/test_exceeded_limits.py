"""By how much token limits are exceeded: the bound against a model of fixed windows, and the figures of a site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
import yaml

from components.models.inference_pool import picker_config
from floor.problems import SiteError
from stacks.plan.gpu_time import token_time
from stacks.plan.limits import UnderWay, exceeded_by, exceedings
from stacks.plan.site_plan import plan_values
from tests import documented
from tests.unit.stacks.site_examples import ROOT, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("001.14", "opening 16")

State = tuple[int, tuple[int, ...]]
"""What this window's count is, and the answers of each model that are under way."""


def following(state: State, limit: int, models: Sequence[UnderWay], parallel: int) -> Iterator[State]:
    """Whatever may come next: a request begins, an answer ends and is charged, or another window begins."""
    used, running = state
    yield 0, running
    for place, model in enumerate(models):
        began, ended = ((*running[:place], running[place] + step, *running[place + 1 :]) for step in (1, -1))
        # As the limit service: above its limit a window refuses, at the limit it does not.
        if used <= limit and running[place] < model.answers and sum(running) < parallel:
            yield used, began
        if running[place]:
            yield from ((used + tokens, ended) for tokens in range(model.most_tokens + 1))


def most_used(limit: int, models: Sequence[UnderWay], parallel: int = 99) -> int:
    """The highest count that any order of events reaches."""
    first: State = (0, (0,) * len(models))
    seen, new = {first}, [first]
    while new:
        reached = {after for state in new for after in following(state, limit, models, parallel)} - seen
        seen |= reached
        new = [*reached]
    return max(used for used, _ in seen)


def model(answers: int, tokens: int) -> UnderWay:
    return UnderWay(answers=answers, most_tokens=tokens, usual_tokens=tokens, of_a_request=1)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_limit_is_exceeded_by_the_bound_and_never_by_more(limit: int) -> None:
    """In every order of events on one model and on two; each reaches the bound too, so that none lower would hold."""
    sizes = [model(answers, tokens) for answers, tokens in product((1, 2, 3), (1, 2, 4))]
    for models in [*([size] for size in sizes), *([size, sizes[4]] for size in sizes)]:
        assert most_used(limit, models) == limit + exceeded_by(models)
        for parallel in (1, 2, 3, 4):
            bound = exceeded_by(models, {"parallel_requests": parallel})
            largest = max(models, key=lambda model: model.most_tokens)
            used = most_used(limit, models, parallel)
            assert used <= limit + bound
            assert used == limit + bound or parallel > largest.answers


def test_a_preview_states_by_how_much_each_tenant_can_exceed_its_limits() -> None:
    """By what the engines of its models take at once; not of requests, which count as they begin."""
    change: dict[str, Any] = {
        "plans": {"team": {"tokens_per_minute": 200_000}, "calls": {"requests_per_minute": 5}},
        "tenants.search.plan": "team",
        "tenants.archive.plan": "calls",
        "models.qwen3-32b.pool.queues": True,
    }
    plan = plan_values(changed(prod(), change), "site.yaml")
    exceeding = exceedings(plan.site, plan.models)
    servers = {name: revision.server for name, revision in plan.named.items()}
    flags = {name: dict(arg.split("=") for arg in plan.named[name].engine.args if "=" in arg) for name in servers}
    answers = {name: plan.proofs[name].case.replicas * int(flags[name]["--max-num-queued-reqs"]) for name in servers}
    for name, revision in plan.named.items():
        config = picker_config(name, "m", revision.spec.pool, revision.picker)["data"]["config.yaml"]
        queues = [int(most) for most in re.findall(r"- priority: \S+\s+maxRequests: \D*(\d+)", config)]
        tiers = {0, *(tier.priority for tier in plan.site.tiers.values())} if name == "qwen3-32b" else ()
        assert len(queues) == len(tiers), config
        answers[name] += revision.spec.pool.pickers * sum(queues)
    most = sum(answers[name] * int(flags[name]["--max-model-len"]) for name in servers)
    assert exceeding.keys() == {"search"}
    assert exceeding["search"].most_tokens == most
    assert f"search: by up to {most:,} tokens, {sum(answers.values()):,} answers" in plan.limits_text
    assert plan.texts[-1] == plan.limits_text
    assert plan_values(prod(), "site.yaml").limits_text == ""


def test_bounds_of_a_tenant_lower_what_it_can_exceed() -> None:
    """Requests at once need the bounds of one request beside them: it may have as many answers as an engine takes."""
    bounds = {"parallel_requests": 3}
    change: dict[str, Any] = {
        "callers.decided_by": "gatekeeper",
        "tenants.archive.limits": {"tokens_per_hour": 9, **bounds},
    }
    plan = plan_values(changed(prod(), change), "site.yaml")
    server = plan.named["qwen3-32b"].server
    assert exceedings(plan.site, plan.models)["archive"].most_tokens == 3 * server.engine_limit * server.max_model_len
    change["tenants.archive.limits"] |= {"max_answer_tokens": 500, "max_prompt_tokens": 1000}
    plan = plan_values(changed(prod(), change), "site.yaml")
    request = server.max_model_len + 500
    assert f"archive: by up to {3 * request:,} tokens, 3 requests of at most {request:,};" in plan.limits_text
    change["tenants.archive.limits"] |= {"max_prompt_tokens": server.max_model_len}
    plan = plan_values(changed(prod(), change), "site.yaml")
    listed = 4 * server.max_model_len + 3 + 500
    assert exceedings(plan.site, plan.models)["archive"].most_tokens == 3 * listed


@pytest.mark.row("001.15")
def test_a_limit_is_shown_in_seconds_of_the_gpus_that_it_is_for() -> None:
    """A limit of what a model carries at the most is all GPU-seconds that it has, whatever the window."""
    name = "qwen3-32b"
    proof = plan_values(prod(), "site.yaml").named[name].proof
    per_hour = round(3600 * proof.capacity_requests_per_s * proof.order.request_tokens)
    change = {"tenants.archive.models": [name], "tenants.archive.limits": {"tokens_per_hour": per_hour}}
    plan = plan_values(changed(prod(), change), "site.yaml")
    seconds = proof.case.gpus * 3600
    line = f"archive: {per_hour:,} tokens per hour take up to {seconds:,} GPU-seconds of {name} (100 %)"
    assert line in plan.limits_text
    time = token_time(plan.named[name])
    assert time is not None
    assert time.answer_s > time.prompt_s > time.cached_s
    # The day's limit is the tighter one over time.
    change["tenants.archive.limits"] = {"tokens_per_hour": per_hour, "tokens_per_day": per_hour}
    assert (
        f"{per_hour:,} tokens per day take up to {seconds:,} GPU-seconds of {name} (4 %)"
        in plan_values(changed(prod(), change), "site.yaml").limits_text
    )


def test_a_model_that_may_carry_nothing_has_no_gpu_time() -> None:
    """It keeps its targets at the fast end of its band alone."""
    tight = {"slo": {"ttft_p50_ms": 170}, "load": {"requests_per_s": 0.001}, "server": {"gpus": 1, "replicas": 2}}
    plan = plan_values(changed(prod(), {"models.qwen3-32b": {"catalogue": "qwen3-32b-fp8"} | tight}), "site.yaml")
    revision = plan.named["qwen3-32b"]
    assert (revision.proof.verdict, revision.proof.capacity_requests_per_s) == ("uncertain", 0)
    assert token_time(revision) is None
    assert "of qwen3-32b (" not in plan.limits_text


def test_the_block_of_the_page_is_the_reference_sites() -> None:
    fences = [*documented.fences(ROOT / "docs" / "how-to" / "limit-tenants.md")]
    ((place, shown),) = [(at, text) for at, (_, text) in enumerate(fences) if text.startswith("limits: ")]
    keys = yaml.safe_load(fences[place - 1][1])
    site = changed(prod(), {"plans": keys["plans"], "tenants.search.plan": keys["tenants"]["search"]["plan"]})
    assert plan_values(site, "site.yaml").limits_text == shown.rstrip("\n")


def test_the_share_of_the_page_is_the_reference_sites() -> None:
    fences = [*documented.fences(ROOT / "docs" / "how-to" / "limit-tenants.md")]
    ((place, shown),) = [(at, text) for at, (_, text) in enumerate(fences) if text.startswith("  KV cache")]
    plans = yaml.safe_load(fences[place - 1][1])["plans"]
    change = {"callers": {"decided_by": "gatekeeper"}, "plans": plans, "tenants.archive.plan": next(iter(plans))}
    assert shown in plan_values(changed(prod(), change), "site.yaml").limits_text + "\n"


@pytest.mark.row("001.37")
@pytest.mark.parametrize("place", ["plans.whole", "tenants.search.limits"])
def test_an_answer_that_an_engine_refuses_is_no_limit(place: str) -> None:
    """A gatekeeper would ask for it where a client gives no length; the fix is a valid site."""
    site = changed(prod(), {"callers": {"decided_by": "gatekeeper"}, place: {"max_answer_tokens": 10**9}})
    if place.startswith("plans"):
        changed(site, {"tenants.search.plan": "whole"})
    with pytest.raises(SiteError) as caught:
        plan_values(site, "site.yaml")
    (problem,) = caught.value.problems
    assert problem.path == (*place.split("."), "max_answer_tokens")
    (context,) = re.findall(r"lower it to (\d+)", problem.fix)
    changed(site, {f"{place}.max_answer_tokens": int(context)})
    assert plan_values(site, "site.yaml").site.bounds["search"] == {"max_answer_tokens": int(context)}
