"""A canary beside its model: planned, proven and placed like a model of its own, and declared without touching it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from floor.headers import MODEL_HEADER, REVISION_HEADER
from floor.revision_ids import RevisionId
from policy.listing import RULES
from policy.model import Resource, SiteFacts, violations
from sitectl.change import cold_starts
from sitectl.change.changes import Change
from sitectl.change.report import report
from stacks.plan.placement import place
from stacks.plan.placing import demands_of, nodes_of
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("001.06", "004.02", "opening 20")

NAME = "qwen3-32b"
# Streams may be a minute longer than those of the stable one, so its replicas' pods are others.
CANARY = {"percent": 25, "pinned": {"search": "stable"}, "server": {"replicas": 1, "longest_stream_s": 660}}
# Objects that list what all revisions have, and pods that are replaced for another list.
SHARED = {
    "EnvoyPatchPolicy inference-gateway/front-door",
    "ConfigMap inference-gateway/callers-tenants",
    "Deployment inference-gateway/gatekeeper",
    "PrometheusRule inference-monitoring/inference-platform",
}


def planned(canary: dict[str, Any] | None) -> SitePlan:
    """The reference site with a canary of one model."""
    changes: dict[str, Any] = {"callers": {"decided_by": "gatekeeper"}}
    if canary is not None:
        changes[f"models.{NAME}.canary"] = canary
    return plan_values(changed(prod(), changes), "Pulumi.prod.yaml")


@pytest.fixture(scope="module")
def plan() -> SitePlan:
    return planned(CANARY)


@pytest.fixture(scope="module")
def before() -> SitePlan:
    return planned(None)


def canary_of(plan: SitePlan) -> str:
    (name,) = plan.named.keys() - plan.models.keys()
    return name


def test_a_further_revision_has_a_name_of_its_own_and_the_stable_one_its_models(plan: SitePlan) -> None:
    name = canary_of(plan)
    canary = plan.named[name]
    assert canary.id == RevisionId(NAME, canary.digest) == RevisionId.of(name)
    assert plan.models[NAME].stable is plan.named[NAME]
    assert (canary.model, canary.name) == (NAME, f"{NAME}--{canary.digest}")
    assert canary.engine.args != [] and f"--served-model-name={NAME}" in " ".join(canary.engine.args).replace(" ", "=")


def test_more_replicas_or_a_larger_share_make_no_other_revision(plan: SitePlan) -> None:
    larger = planned({**CANARY, "percent": 50, "server": {**CANARY["server"], "replicas": 2}})  # type: ignore[dict-item]
    assert canary_of(larger) == canary_of(plan)
    other = planned({**CANARY, "server": {**CANARY["server"], "extra_args": ["--seed=7"]}})  # type: ignore[dict-item]
    assert canary_of(other) != canary_of(plan)


def test_each_has_its_proof_and_its_place(plan: SitePlan, before: SitePlan) -> None:
    """The canary's is of its share of the load, and the stable one's is still of all of it: there is a way back."""
    name = canary_of(plan)
    assert plan.proofs.keys() == plan.load_s.keys() == plan.weight_bytes.keys() == {*before.proofs, name}
    assert plan.proofs[NAME] == before.proofs[NAME]
    whole, share = plan.proofs[NAME].order.load, plan.proofs[name].order.load
    assert whole and share and share.requests_per_s == whole.requests_per_s / 4
    assert plan.stores[name].claim != plan.stores[NAME].claim
    placement = place(nodes_of(plan.site) or [], demands_of(plan.proofs, plan.specs))
    assert Counter(replica.model for replica in placement.replicas)[name] == 1
    assert name in plan.placement_text


def test_the_plan_says_who_gets_it_and_what_an_empty_cache_costs(plan: SitePlan) -> None:
    text = plan.texts[-1]
    name = canary_of(plan)
    assert f"{NAME}: 25 % of its sessions are served by {name}; search stays on the stable one" in text
    cold, usual = text.partition("TTFT p95 ")[2].split(" later")[0].split(", ")
    assert float(cold.removesuffix(" ms")) > float(usual.removesuffix(" ms"))


def declared(plan: SitePlan, tmp_path: Path) -> list[Resource]:
    tmp_path.mkdir()
    recorder = Recorder()
    _, requests = requested(plan.site, tmp_path, recorder)
    return [
        Resource(
            type=args.typ,
            name=name,
            body=args.inputs,
            protected=requests[name].protect,
            retained=requests[name].retainOnDelete,
        )
        for name, args in recorder.resources.items()
        if name in requests
    ]


@pytest.mark.slow
def test_its_objects_clash_with_none_keep_the_rules_and_have_verdicts_of_their_own(
    plan: SitePlan, before: SitePlan, tmp_path: Path
) -> None:
    first, after = declared(before, tmp_path / "before"), declared(plan, tmp_path / "after")
    name = canary_of(plan)
    old, new = ({resource.label: resource for resource in some} for some in (first, after))
    own = [resource for label, resource in new.items() if label not in old]
    assert {label for label in old if old[label].kind and old[label].body != new[label].body} == SHARED
    # A volume that nothing can delete would keep the canary on the site for ever.
    claim = next(resource for resource in own if resource.kind == "PersistentVolumeClaim")
    assert not claim.protected
    kinds = Counter(resource.kind for resource in own if resource.kind)
    assert kinds == Counter(resource.kind for resource in old.values() if resource.kind and NAME in resource.label)
    facts = SiteFacts(name="prod", load_s=plan.load_s)
    assert {violation.resource for violation in violations(after, facts, RULES)} == {
        violation.resource for violation in violations(first, facts, RULES)
    }
    changes = [Change(op="create", type=added.type, name=added.name, after=added.body) for added in own if added.kind]
    rows = report("prod", changes, {"search": {"glm-5-1"}, "chat": {NAME}}, starts=cold_starts.of_plan(plan)).rows
    of_canary = [row for row in rows if row.model]
    assert {(row.model, row.tenants) for row in of_canary} == {(name, ("chat",))}
    server = next(row for row in of_canary if row.resource == f"Deployment inference-models/{name}")
    assert server.expected_start_s == cold_starts.of_plan(plan)[name].expected_s(server)


@pytest.mark.slow
def test_only_a_request_that_the_gatekeeper_marked_finds_its_route(plan: SitePlan, tmp_path: Path) -> None:
    """The route of the stable revision takes all others, also when the canary's is not there."""
    name = canary_of(plan)
    bodies = {resource.label: resource.body for resource in declared(plan, tmp_path / "site")}
    headers_of = {
        route: bodies[f"AIGatewayRoute inference-models/{route}"]["spec"]["rules"][0]["matches"][0]["headers"]
        for route in (NAME, name)
    }
    assert {(header["name"], header["value"]) for header in headers_of[NAME]} == {(MODEL_HEADER, NAME)}
    assert {(header["name"], header["value"]) for header in headers_of[name]} == {
        (MODEL_HEADER, NAME),
        (REVISION_HEADER, name),
    }
    callers = json.loads(bodies["ConfigMap inference-gateway/callers-tenants"]["data"]["tenants.json"])
    assert callers["canaries"] == {
        NAME: {"revision": name, "percent": 25, "sticky": "session", "pinned": {"search": "stable"}}
    }


@pytest.mark.slow
def test_envoy_asks_its_picker_for_longer_than_it_has_its_route(plan: SitePlan, tmp_path: Path) -> None:
    """What depends on another resource goes before it. Else requests of every model fail as the canary goes."""
    _, requests = requested(plan.site, tmp_path, Recorder())
    name = canary_of(plan)

    def needs(of: str) -> set[str]:
        return {urn.rpartition("::")[2] for urn in requests[of].dependencies}

    assert f"{name}-picker" in needs(f"{name}-route")
    assert f"front-door-{name}-picker" in needs(f"{name}-picker")
    assert "front-door-filters" in needs(f"front-door-{name}-picker")
