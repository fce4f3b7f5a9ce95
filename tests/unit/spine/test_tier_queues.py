"""The queues by tier in front of a model: what they hold, and that only a model that has them is any different."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.gateway.envoy_names import ROUTER_FILTER
from components.gateway.envoy_patches import where_filter
from components.gateway.front_door import front_door
from components.gateway.pickers import Picker, client_policy, picker_policy
from components.gateway.traffic_policies import target_gateway
from components.models.inference_pool import picker_config
from stacks.facts import versions
from stacks.plan.models import RevisionPlan, plan_model
from stacks.plan.picking import bands
from stacks.site.model import SiteConfig
from tests.unit.spine.test_grafana_site import declared
from tests.unit.spine.test_rendered_settings import PROD

pytestmark = pytest.mark.row("002.15", "001.02", "004.16", "004.22")

INTERACTIVE, JOBS = {"interactive": {"priority": 100}}, {"batch": {"priority": -10}}


def planned(tiers: Mapping[str, Any], pickers: int = 2, *, queues: bool = True) -> RevisionPlan:
    site = copy.deepcopy(PROD) | {"tiers": dict(tiers), "tenants": {}}
    site["models"]["glm-5-1"]["pool"] |= {"pickers": pickers, "queues": queues}
    return plan_model(SiteConfig.model_validate(site), "glm-5-1", versions.load().images).stable


def configured(plan: RevisionPlan) -> dict[str, Any]:
    text = picker_config("m", "n", plan.spec.pool, plan.picker)["data"]["config.yaml"]
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def test_a_model_has_no_queues_unless_its_site_says_so() -> None:
    config = configured(planned(INTERACTIVE | JOBS, queues=False))
    assert not {"featureGates", "flowControl"} & config.keys()
    assert "round-robin-fairness-policy" not in {plugin["type"] for plugin in config["plugins"]}


def test_each_priority_has_a_queue_that_tenants_share_in_turns() -> None:
    """Tenants without a tier have priority 0; a site without tiers has this one queue."""
    (alone,) = configured(planned({}))["flowControl"]["priorityBands"]
    assert alone["priority"] == 0
    flow = configured(planned(INTERACTIVE | JOBS))["flowControl"]
    queues = flow["priorityBands"]
    assert [queue["priority"] for queue in queues] == [100, 0, -10]
    for queue in (*queues, flow["defaultPriorityBand"]):
        assert queue["fairnessPolicyRef"] == "round-robin-fairness-policy"
    assert flow["maxBytes"] > 0


@pytest.mark.parametrize("pickers", [1, 2, 3])
def test_jobs_that_all_pickers_let_go_at_once_leave_room_in_the_replicas_queues(pickers: int) -> None:
    """A quarter of what the replicas' queues have left then."""
    plan = planned(INTERACTIVE | JOBS | {"nightly": {"priority": -20}}, pickers)
    case, picker = plan.proof.case, plan.picker
    held = {band.priority: band.requests for band in picker.bands}
    dispatched = case.replicas * (case.slots + picker.shedding_queue_threshold)
    assert held[-10] == held[-20] == max(1, held[0] // (8 * pickers))
    assert dispatched + pickers * (held[-10] + held[-20]) < plan.parallel_requests
    # None with a priority from 0 on is refused that the replicas alone would have queued.
    assert dispatched + held[100] == plan.parallel_requests == dispatched + held[0]


def test_no_queue_is_without_room() -> None:
    for room, pickers in itertools.product((1, 2, 7), (1, 3)):
        assert all(band.requests >= 1 for band in bands(room, pickers, {100, -1, -2, -3}))


def filters(*, shared: bool) -> list[str]:
    """Names of the filters right before Envoy's last one, in their order."""
    picker = Picker(pool="m", namespace="n", authority="m-epp.n.svc:9002", parallel=9)
    policies = [
        *([client_policy("g", target_gateway(), listener="l")] if shared else ()),
        picker_policy("g", target_gateway(), listener="l", picker=picker),
        front_door("g", target_gateway(), listener="l", port=1, tls=True, shared=shared),
    ]
    placed = [ROUTER_FILTER]
    for policy in sorted(policies, key=lambda policy: policy["spec"].get("priority", 0)):
        for operation in (patch["operation"] for patch in policy["spec"]["jsonPatches"]):
            for before in [name for name in placed if where_filter(name) == operation.get("jsonPath")]:
                placed.insert(placed.index(before), operation["value"]["name"])
    return placed[:-1]


def test_a_tenant_is_named_to_pickers_alone() -> None:
    """By filters around theirs. None of theirs has its place by these, as turns may end while pickers run."""
    (picker,) = filters(shared=False)
    assert filters(shared=True) == ["inference-platform.shares-by-tenant", picker, "inference-platform.client"]


@pytest.mark.slow
def test_pickers_stay_as_they_are_while_turns_begin_and_end(tmp_path: Path) -> None:
    """The AI gateway fills in for a filter that finds no place, and fails requests once another model's pool goes."""
    off, on = (tmp_path / name for name in ("off", "on"))
    for folder in (off, on):
        folder.mkdir()
    before, (after, requests) = declared(off, {})[0], declared(on, {"models.glm-5-1.pool.queues": True})
    pickers = [name for name in before if name.startswith("front-door-") and name.endswith("-picker")]
    assert len(pickers) > 1
    assert [after[name] for name in pickers] == [before[name] for name in pickers]
    # A tenant's name is never without what takes it away behind pickers: this is made first, and goes last.
    assert {name for name in after if name.startswith("front-door-")} - {*before} == {"front-door-client-again"}
    waits = {urn.rpartition("::")[2] for urn in requests["front-door-filters"].dependencies}
    assert "front-door-client-again" in waits
