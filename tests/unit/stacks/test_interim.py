"""From a lost node until its replicas serve elsewhere: how many are left, for how long, and whether they are enough."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.interim import Interim, described, interims
from stacks.plan.placement import place
from stacks.plan.placing import demands_of, nodes_of
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.proof.proof import ENGINE_START_S
from tests.unit.stacks.site_examples import prod

pytestmark = pytest.mark.row("opening 1", "002.12")

LARGE, SMALL = ("hgx-1", "hgx-2"), ("hgx-3", "hgx-4")


def without_priority() -> dict[str, Any]:
    values = prod()
    del values["models"]["glm-5-1"]["server"]["priority"]
    return values


def plan_of(values: dict[str, Any]) -> SitePlan:
    return plan_values(values, "site.yaml")


def interims_of(plan: SitePlan) -> list[Interim]:
    nodes = nodes_of(plan.site) or []
    return interims(place(nodes, demands_of(plan.proofs, plan.site.models)).losses, plan.proofs)


def test_what_makes_room_is_away_too_and_all_of_a_model_read_at_once() -> None:
    """The large one takes a node of two small ones; a small one's node has two of them as well."""
    plan = plan_of(prod())
    large, small = interims_of(plan)
    assert (large.model, large.nodes, large.replicas, large.of) == ("glm-5-1", LARGE, 1, 2)
    assert (small.model, small.nodes, small.replicas, small.of) == ("qwen3-32b", LARGE + SMALL, 2, 4)
    rate = plan.site.storage.shared_read_bytes_per_s or 0
    for interim, readers in ((large, 1), (small, 2)):
        read_s = plan.proofs[interim.model].order.file_bytes * readers / rate
        assert interim.start_s == pytest.approx(read_s + ENGINE_START_S)


def test_what_finds_no_room_is_not_away_for_a_while() -> None:
    """Without a priority the large one waits for its node, and nothing stops for it."""
    (small,) = interims_of(plan_of(without_priority()))
    assert (small.model, small.nodes, small.replicas, small.of) == ("qwen3-32b", SMALL, 2, 4)


def test_the_rest_carries_its_part_with_the_settings_that_it_has() -> None:
    """A site with as few replicas from the start would have others, and carry more."""
    plan = plan_of(prod())
    for interim in interims_of(plan):
        whole = plan.proofs[interim.model].serving["utilisation"].value
        assert interim.utilisation_percent == pytest.approx(whole * interim.of / interim.replicas, rel=0.01)
        assert (interim.utilisation_percent or 0) > 100
        assert (interim.verdict, interim.as_computed) == ("uncertain", "fails")


@pytest.mark.parametrize(
    ("requests_per_s", "line"),
    [
        (0.1, "14.5 % used (8.79 to 20.1): keeps its targets"),
        (0.6, "87.1 % used (52.7 to 121): may miss its targets"),
        (0.7, "102 % used (61.5 to 141): MISSES ITS TARGETS, except at the fast end"),
        (1.35, "197 % used (119 to 272): MISSES ITS TARGETS"),
        (3.2, ", the load is more than they carry: MISSES ITS TARGETS, except at the fast end"),
    ],
)
def test_more_than_the_rest_carries_is_plain(requests_per_s: float, line: str) -> None:
    values = prod()
    values["models"]["glm-5-1"]["load"]["requests_per_s"] = requests_per_s
    (text,) = (text for text in described(interims_of(plan_of(values))) if "glm-5-1" in text)
    assert text.startswith("hgx-1, hgx-2: glm-5-1 has 1 of 2 replicas during a start of 1,380 s, ")
    assert text.endswith(line)


def test_the_only_replica_is_away_while_it_starts_elsewhere() -> None:
    values = prod()
    values["models"]["qwen3-32b"]["server"]["replicas"] = 1
    values["models"]["qwen3-32b"]["load"]["requests_per_s"] = 0.5
    plan = plan_of(values)
    assert [text for text in described(interims_of(plan)) if "qwen" in text] == [
        "hgx-3: qwen3-32b HAS NO REPLICA during a start of 177 s"
    ]
    assert "A LOST NODE STOPS A MODEL UNTIL IT HAS STARTED ELSEWHERE" in plan.placement_text
