"""Models whose number of replicas follows their load: what the nodes can give them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.placement import Demand, Node, fits
from stacks.plan.scaling import reach
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("001.24", "001.25", "002.05", "003.30", "opening 21")

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "scale-a-model.md"
QWEN, GLM = "models.qwen3-32b.server", "models.glm-5-1.server"
BOTH: dict[str, Any] = {
    f"{QWEN}.scaling": {"least": 2},
    f"{QWEN}.replicas": 18,
    f"{GLM}.scaling": {"least": 1},
    f"{GLM}.replicas": 3,
}


def plan(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


def scaling_of(planned: SitePlan) -> list[str]:
    (block,) = (text for text in planned.texts if text.startswith("scaling:"))
    return block.splitlines()[1:]


def test_preview_shows_what_the_least_carry_and_which_counts_are_reached() -> None:
    alone, room = scaling_of(plan({f"{QWEN}.scaling": {"least": 2}}))
    assert alone.startswith("  qwen3-32b: 2 to 4 replicas; 2 replicas carry 2.42 of the declared 4 requests/s")
    assert room == "    there is room for all of them, in whatever order replicas start and end"
    assert "\n".join(["scaling:", alone, room]) in PAGE.read_text()
    _, glm, _, qwen = scaling_of(plan(BOTH))
    assert glm == (
        "    there is room for 2, or up to 3 where replicas happen to leave a node free while other models have their "
        "least, and for 1 while they have their most"
    )
    assert qwen.endswith("room for 18 while other models have their least, and for 8 while they have their most")


def test_a_model_that_others_can_keep_small_is_a_warning() -> None:
    assert not any("scaling" in warning.path for warning in plan({f"{QWEN}.scaling": {"least": 2}}).warnings)
    planned = plan(BOTH)
    warned = {warning.key: warning.what for warning in planned.warnings}
    assert warned[f"{GLM}.scaling.least"].startswith("a lost node or a drain stops the model")
    assert warned[f"{GLM}.scaling"].startswith("of its 3 replicas 1 find room for sure")


def test_settings_of_the_autoscaler_follow_from_the_proof() -> None:
    settings = plan({f"{QWEN}.scaling": {"least": 2}}).named["qwen3-32b"].settings
    fixed = plan({}).named["qwen3-32b"].settings
    assert not [key for key in fixed if key.startswith("autoscale_")]
    # Its 4 replicas carry 7.53 requests/s; a request is there for 344 tokens of 27.2 ms and more.
    assert settings["autoscale_requests"].whole == pytest.approx(0.8 * 7.53 / 4 * 344 * 0.04, rel=0.25)
    assert settings["autoscale_kv_share"].number < settings["picker_kv_threshold"].number
    assert settings["autoscale_window_s"].whole == 178
    assert (settings["disruption_max_unavailable"].whole, fixed["disruption_max_unavailable"].whole) == (1, 1)


def test_guarantees_count_on_the_replicas_that_there_always_are() -> None:
    guaranteed = {"tenants.archive.limits.guaranteed_tokens_per_minute": 400_000, f"{QWEN}.scaling": {"least": 2}}
    with pytest.raises(
        SiteError, match=rf"2 replicas are proven to carry .*\n.*raise {QWEN}.scaling.least from 2 to 3"
    ):
        plan(guaranteed)
    assert plan({**guaranteed, f"{QWEN}.scaling.least": 3})


@pytest.mark.parametrize(
    "wrong",
    [
        Wrong({f"{QWEN}.scaling": {"least": 4}}, QWEN, "not below replicas", {f"{QWEN}.replicas": 5}),
        Wrong(
            {f"{QWEN}.replicas": {"least": 2, "most": 5}},
            f"{QWEN}.replicas",
            "fix: write replicas: 5 and, beside it, scaling: {least: 2}",
            {f"{QWEN}.replicas": 5, f"{QWEN}.scaling": {"least": 2}},
        ),
        Wrong(
            {f"{QWEN}.scaling": {"least": 2}, f"{QWEN}.replicas": 18},
            f"{QWEN}.replicas",
            f"fix: lower {QWEN}.replicas from 18 to 16",
            {f"{QWEN}.replicas": 16},
        ),
        Wrong(
            {f"{QWEN}.scaling": {"least": 20}, f"{QWEN}.replicas": 28},
            f"{QWEN}.scaling.least",
            f"fix: lower {QWEN}.scaling.least from 20 to 16",
            {f"{QWEN}.scaling.least": 12, f"{QWEN}.replicas": 16},
        ),
        Wrong(
            {f"{QWEN}.scaling": {"least": 2, "peaks": [{"start": "0 8 * * *", "end": "0 18 * *", "least": 4}]}},
            f"{QWEN}.scaling.peaks.0.end",
            "is no time of cron's",
            {f"{QWEN}.scaling.peaks.0.end": "0 18 * * *"},
        ),
        Wrong(
            {f"{QWEN}.scaling": {"least": 2, "peaks": [{"start": "0 8 * * 1-7", "end": "0 9 * * *", "least": 4}]}},
            f"{QWEN}.scaling.peaks.0.start",
            "Sunday is 0",
            {f"{QWEN}.scaling.peaks.0.start": "0 8 * * *"},
        ),
        Wrong(
            {f"{QWEN}.scaling": {"least": 2, "peaks": [{"start": "99 8 * * *", "end": "0 9 * * *", "least": 4}]}},
            f"{QWEN}.scaling.peaks.0.start",
            "has no minute that cron knows",
            {f"{QWEN}.scaling.peaks.0.start": "*/15 8-9 ? jan,DEC MON-fri"},
        ),
        Wrong(
            {f"{QWEN}.scaling": {"least": 2, "peaks": [{"start": "0 8 31 2,4 *", "end": "0 9 * * *", "least": 4}]}},
            f"{QWEN}.scaling.peaks.0.start",
            "never comes",
            {f"{QWEN}.scaling.peaks.0.start": "0 8 29 2 *"},
        ),
        Wrong(
            {f"{QWEN}.scaling": {"least": 2, "peaks": [{"start": "0 8 * * *", "end": "0  8 * * *", "least": 4}]}},
            f"{QWEN}.scaling.peaks.0",
            "ends when it begins",
            {f"{QWEN}.scaling.peaks.0.end": "0 9 * * *"},
        ),
        Wrong(
            {f"{QWEN}.scaling": {"least": 2, "peaks": [{"start": "0 8 * * *", "end": "0 9 * * *", "least": 9}]}},
            QWEN,
            "got 9, with 2 and 4; allowed: from 3 to 4",
            {f"{QWEN}.scaling.peaks.0.least": 4},
        ),
    ],
    ids=lambda wrong: wrong.what,
)
def test_a_range_that_cannot_be_is_refused(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


@pytest.mark.parametrize("seed", range(200))
def test_what_is_always_reached_is_so_in_any_order(seed: int) -> None:
    """Replicas start in a random order, each on a random node that has room, and some end on the way."""
    chance = Random(seed)  # noqa: S311 - not for a secret
    nodes = [Node(name=f"n{number}", gpu="h200-sxm", gpus=8) for number in range(chance.randint(1, 5))]
    sizes = chance.sample([1, 2, 4, 8], chance.randint(1, 3))
    demands = [
        Demand(model=f"m{size}", gpu="h200-sxm", gpus=size, replicas=chance.randint(0, 10 // size)) for size in sizes
    ]
    answer = reach(nodes, demands)
    assert (answer != "never") == fits(nodes, demands)
    if answer == "always":
        for _ in range(20):
            assert _starts(nodes, demands, chance)


def _starts(nodes: list[Node], demands: list[Demand], chance: Random) -> bool:
    free = {node.name: node.gpus for node in nodes}
    running: list[tuple[int, str]] = []
    waiting = [demand.gpus for demand in demands for _ in range(demand.replicas)]
    for _ in range(200):
        if running and chance.random() < 0.3:
            size, node = running.pop(chance.randrange(len(running)))
            free[node] += size
            waiting.append(size)
        elif waiting:
            size = waiting.pop(chance.randrange(len(waiting)))
            rooms = [name for name, left in free.items() if left >= size]
            if not rooms:
                return False
            node = chance.choice(rooms)
            free[node] -= size
            running.append((size, node))
    return True


def test_a_canary_of_a_model_that_scales_has_a_number_of_replicas() -> None:
    canary = {"callers.decided_by": "gatekeeper", f"{QWEN}.scaling": {"least": 2}}
    canary |= {"models.qwen3-32b.canary": {"percent": 5, "server": {"replicas": 1}}}
    planned = plan(canary)
    stable, tried = planned.models["qwen3-32b"].revisions.values()
    assert (stable.spec.server.least, stable.spec.server.replicas) == (2, 4)
    assert (tried.spec.server.scaling, tried.spec.server.replicas) == (None, 1)


def test_a_model_that_others_may_stop_is_a_warning() -> None:
    """Kubernetes knows no least: a higher priority takes what it needs."""
    ranked = {**BOTH, f"{GLM}.priority": 100, f"{QWEN}.priority": 200}
    warned = {warning.key: warning.what for warning in plan(ranked).warnings}
    assert warned[GLM].startswith("qwen3-32b may stop its replicas while at their most")
    assert QWEN not in warned
