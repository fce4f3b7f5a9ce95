"""By how much token limits are exceeded: the bound against a model of fixed windows, and the figures of a site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
import yaml

from stacks.plan.limits import UnderWay, exceeded_by, exceedings
from stacks.plan.site_plan import plan_values
from tests import documented
from tests.unit.stacks.site_examples import ROOT, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("001.14", "opening 16")

State = tuple[int, tuple[int, ...]]
"""What this window's count is, and the answers of each model that are under way."""


def following(state: State, limit: int, models: Sequence[UnderWay]) -> Iterator[State]:
    """Whatever may come next: a request begins, an answer ends and is charged, or another window begins."""
    used, running = state
    yield 0, running
    for place, model in enumerate(models):
        began, ended = ((*running[:place], running[place] + step, *running[place + 1 :]) for step in (1, -1))
        # As the limit service: above its limit a window refuses, at the limit it does not.
        if used <= limit and running[place] < model.answers:
            yield used, began
        if running[place]:
            yield from ((used + tokens, ended) for tokens in range(model.most_tokens + 1))


def most_used(limit: int, models: Sequence[UnderWay]) -> int:
    """The highest count that any order of events reaches."""
    first: State = (0, (0,) * len(models))
    seen, new = {first}, [first]
    while new:
        reached = {after for state in new for after in following(state, limit, models)} - seen
        seen |= reached
        new = [*reached]
    return max(used for used, _ in seen)


def model(answers: int, tokens: int) -> UnderWay:
    return UnderWay(answers=answers, most_tokens=tokens, usual_tokens=tokens)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_limit_is_exceeded_by_the_bound_and_never_by_more(limit: int) -> None:
    """In every order of events on one model and on two; each reaches the bound too, so that none lower would hold."""
    sizes = [model(answers, tokens) for answers, tokens in product((1, 2, 3), (1, 2, 4))]
    for models in [*([size] for size in sizes), *([size, sizes[4]] for size in sizes)]:
        assert most_used(limit, models) == limit + exceeded_by(models)


def test_a_preview_states_by_how_much_each_tenant_can_exceed_its_limits() -> None:
    """By what the engines of its models take at once; not of requests, which count as they begin."""
    change: dict[str, Any] = {
        "plans": {"team": {"tokens_per_minute": 200_000}, "calls": {"requests_per_minute": 5}},
        "tenants.search.plan": "team",
        "tenants.archive.plan": "calls",
    }
    plan = plan_values(changed(prod(), change), "site.yaml")
    exceeding = exceedings(plan.site, plan.models)
    servers = {name: revision.server for name, revision in plan.named.items()}
    flags = {name: dict(arg.split("=") for arg in plan.named[name].engine.args if "=" in arg) for name in servers}
    answers = {name: plan.proofs[name].case.replicas * int(flags[name]["--max-num-queued-reqs"]) for name in servers}
    most = sum(answers[name] * int(flags[name]["--max-model-len"]) for name in servers)
    assert exceeding.keys() == {"search"}
    assert (exceeding["search"].answers, exceeding["search"].most_tokens) == (sum(answers.values()), most)
    assert f"search: by up to {most:,} tokens" in plan.limits_text
    assert plan.texts[-1] == plan.limits_text
    assert plan_values(prod(), "site.yaml").limits_text == ""


def test_the_block_of_the_page_is_the_reference_sites() -> None:
    fences = [*documented.fences(ROOT / "docs" / "how-to" / "limit-tenants.md")]
    ((place, shown),) = [(at, text) for at, (_, text) in enumerate(fences) if text.startswith("limits: ")]
    keys = yaml.safe_load(fences[place - 1][1])
    site = changed(prod(), {"plans": keys["plans"], "tenants.search.plan": keys["tenants"]["search"]["plan"]})
    assert plan_values(site, "site.yaml").limits_text == shown.rstrip("\n")
