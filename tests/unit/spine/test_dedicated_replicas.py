"""Dedicated replicas beside a model's shared ones: proven, placed, on the same weights, behind a route of their own."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from components.monitoring.revisions import as_revision
from floor.headers import MODEL_HEADER, REVISION_HEADER
from floor.problems import SiteError
from floor.revision_ids import RevisionId
from policy.listing import RULES
from policy.model import SiteFacts, violations
from sitectl.change.changes import Change
from sitectl.change.report import callers_of, report
from stacks.plan.guarantees import carried, draws
from stacks.plan.idle import gpu_costs
from stacks.plan.limits import exceedings
from stacks.plan.placement import place
from stacks.plan.placing import demands_of, nodes_of
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.whatif.deployment import tiers_of
from stacks.whatif.scenario import Scenario
from stacks.whatif.twin import outcome_of
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.spine.test_second_revision import declared
from tests.unit.stacks.site_examples import ROOT, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("001.10")

MODEL = "qwen3-32b"
OWN = RevisionId(MODEL, group="search")
FOR_SEARCH = {"tenants": ["search"], "server": {"replicas": 2}, "load": {"requests_per_s": 0.5}}
GUARANTEED = "tenants.search.limits.guaranteed_tokens_per_minute"


def planned(dedicated: dict[str, Any] | None, **more: Any) -> SitePlan:
    """The reference site with these replicas of one model. more: keys with two underscores for a dot."""
    changes: dict[str, Any] = {"callers": {"decided_by": "gatekeeper"}}
    changes |= {key.replace("__", "."): value for key, value in more.items()}
    if dedicated is not None:
        changes[f"models.{MODEL}.dedicated"] = {OWN.group: dedicated}
    return plan_values(changed(prod(), changes), "Pulumi.prod.yaml")


@pytest.fixture(scope="module")
def plan() -> SitePlan:
    return planned(FOR_SEARCH)


@pytest.fixture(scope="module")
def before() -> SitePlan:
    return planned(None)


def test_a_name_leads_back_to_what_it_is_of() -> None:
    for revision in (RevisionId("a"), RevisionId("a", "0a1b2c3d"), RevisionId("a", group="0a1b2c3d"), OWN):
        assert RevisionId.of(revision.name) == revision
    assert RevisionId("a", group="b--for-c").path == ("models", "a", "dedicated", "b--for-c")
    assert RevisionId.of("a--for-b--for-c") == RevisionId("a", group="b--for-c")


def test_what_is_held_beside_the_stable_one_is_counted_as_its_model() -> None:
    *_, pattern = re.findall(r'"model", "([^"]+)"\)', as_revision("tokens"))
    for revision in (OWN, RevisionId(MODEL, "0a1b2c3d"), RevisionId(MODEL, group="0a1b2c3d")):
        matched = re.fullmatch(pattern, revision.name)
        assert matched and matched[1] == MODEL
    assert not re.fullmatch(pattern, MODEL)


def test_they_have_a_proof_and_a_place_of_their_own_beside_all_others(plan: SitePlan, before: SitePlan) -> None:
    """The shared ones stay proven as they were. A load has the shape of the model's."""
    assert plan.proofs.keys() == {*before.proofs, OWN.name}
    assert plan.proofs[MODEL] == before.proofs[MODEL]
    shared, own = plan.proofs[MODEL].order.load, plan.proofs[OWN.name].order.load
    assert shared and own and own.requests_per_s == 0.5
    assert (own.prompt_tokens, own.prefix_hit) == (shared.prompt_tokens, shared.prefix_hit)
    placement = place(nodes_of(plan.site) or [], demands_of(plan.placed, plan.specs))
    assert Counter(replica.model for replica in placement.replicas)[OWN.name] == 2
    # Each lost node is one of those that are proven for.
    assert {name for loss in placement.losses for name, _ in loss.out} >= {OWN.name, MODEL}
    gpus, earlier = ({cost.model: cost.gpus for cost in gpu_costs(some, 1)}[MODEL] for some in (plan, before))
    assert gpus == earlier + plan.proofs[OWN.name].case.gpus


def test_the_weights_are_those_of_the_model(plan: SitePlan, before: SitePlan) -> None:
    """No volume, no room on disks and no download more."""
    assert plan.weight_bytes == before.weight_bytes
    assert plan.stores == before.stores
    assert plan.storage_text == before.storage_text
    assert [name for name, revision in plan.named.items() if "downloading" in revision.text()] == ["glm-5-1", MODEL]


def test_the_plan_says_whose_they_are(plan: SitePlan) -> None:
    """In the words of the page."""
    assert plan.texts[-1].startswith(f"dedicated:\n  {MODEL}: search has 2 replicas of {OWN.name}; while none")
    assert f"```text\n{plan.texts[-1]}\n```" in (ROOT / "docs/how-to/dedicated-replicas.md").read_text()


def test_a_guarantee_is_carried_by_the_replicas_that_answer_its_tenant(plan: SitePlan) -> None:
    """What they do not carry is refused with the key of their number, and they need a load for it."""
    most = carried(plan.proofs[OWN.name])
    assert most
    on_one_model = {"tenants__search__models": [MODEL]}
    kept = planned(FOR_SEARCH, **{GUARANTEED.replace(".", "__"): most}, **on_one_model)
    assert [(draw.model, set(draw.guarantees)) for draw in draws(kept.site, kept.models)] == [(OWN.name, {"search"})]
    # No other tenant can take what they carry.
    assert not [warning for warning in kept.warnings if "guaranteed" in warning.what]
    with pytest.raises(SiteError) as caught:
        planned(FOR_SEARCH, **{GUARANTEED.replace(".", "__"): most + 1}, **on_one_model)
    assert f"raise models.{MODEL}.dedicated.search.server.replicas from 2 to 3" in str(caught.value)
    with pytest.raises(SiteError) as caught:
        planned({**FOR_SEARCH, "load": None}, **{GUARANTEED.replace(".", "__"): 1}, **on_one_model)
    assert f"add models.{MODEL}.dedicated.search.load" in str(caught.value)


def test_limits_are_exceeded_by_what_may_answer_the_tenant(plan: SitePlan, before: SitePlan) -> None:
    """By its own replicas, and by the shared ones too where these stand in."""
    limited = {"tenants__search__limits": {"tokens_per_minute": 1000}, "tenants__search__models": [MODEL]}
    shared, own, both = (
        exceedings(some.site, some.models)["search"].most_tokens
        for some in (
            planned(None, **limited),
            planned(FOR_SEARCH, **limited),
            planned({**FOR_SEARCH, "when_away": "shared"}, **limited),
        )
    )
    assert both == own + shared
    assert own == shared * 2 / 4


@pytest.mark.slow
def test_only_the_gatekeepers_mark_leads_to_them_and_nothing_else_changes(
    plan: SitePlan, before: SitePlan, tmp_path: Path
) -> None:
    first, after = declared(before, tmp_path / "before"), declared(plan, tmp_path / "after")
    old, new = ({resource.label: resource for resource in some} for some in (first, after))
    touched = {label for label in old if old[label].kind and old[label].body != new[label].body}
    assert {label.rpartition("/")[2] for label in touched} == {
        *("front-door", "callers-tenants", "gatekeeper", "inference-platform")
    }
    added = [resource for label, resource in new.items() if label not in old and resource.kind]
    kinds = Counter(resource.kind for resource in added)
    assert kinds["Deployment"] == kinds["InferencePool"] + 1 == 2
    assert not {"PersistentVolumeClaim", "Job"} & kinds.keys()
    assert not kinds.keys() - {resource.kind for resource in first}
    route = new[f"AIGatewayRoute inference-models/{OWN.name}"].body["spec"]["rules"][0]
    headers = {header["name"]: header["value"] for header in route["matches"][0]["headers"]}
    assert headers == {MODEL_HEADER: MODEL, REVISION_HEADER: OWN.name}
    callers = json.loads(new["ConfigMap inference-gateway/callers-tenants"].body["data"]["tenants.json"])
    assert {name: tenant.get("dedicated") for name, tenant in callers["tenants"].items()} == {
        "archive": None,
        "search": {MODEL: {"revision": OWN.name, "when_away": "refuse"}},
    }
    assert "pools" not in callers
    assert "local revision" in json.dumps(new["EnvoyPatchPolicy inference-gateway/front-door"].body)
    facts = SiteFacts(name="prod", load_s=plan.load_s)
    broken = [{violation.resource for violation in violations(some, facts, RULES)} for some in (first, after)]
    assert broken[0] == broken[1]
    rows = report(
        "prod",
        [Change(op="create", type=made.type, name=made.name, after=made.body) for made in added],
        callers_of(after),
    ).rows
    assert {(row.model, row.tenants) for row in rows if row.model} == {(OWN.name, ("search",))}
    known = "ConfigMap inference-gateway/callers-tenants"
    moved = Change(
        op="update", type=new[known].type, name=new[known].name, before=old[known].body, after=new[known].body
    )
    (row,) = report("prod", [moved], callers_of(after)).rows
    assert (row.what, row.tenants) == (f"tenant search: {MODEL} by shared replicas -> {OWN.name}", ("search",))
    shared = f"Deployment inference-models/{MODEL}"
    stopped = Change(op="delete", type=old[shared].type, name=old[shared].name, before=old[shared].body)
    assert {row.tenants for row in report("prod", [stopped], callers_of(after)).rows} == {("archive",)}


@pytest.mark.slow
def test_their_pods_mount_what_the_models_job_brings_and_hold_its_earlier_files(plan: SitePlan, tmp_path: Path) -> None:
    recorder = Recorder()
    _, requests = requested(plan.site, tmp_path, recorder)
    pods = {name: recorder.resources[f"{name}-server"].inputs["spec"]["template"]["spec"] for name in (MODEL, OWN.name)}
    assert pods[OWN.name]["volumes"] == pods[MODEL]["volumes"]
    assert pods[OWN.name]["initContainers"] == pods[MODEL]["initContainers"]

    def waits_for(name: str) -> set[str]:
        return {urn.rpartition("::")[2] for urn in requests[name].dependencies}

    assert {f"{MODEL}-weights", f"{MODEL}-bring"} <= waits_for(f"{OWN.name}-server")
    assert {f"{MODEL}-server", f"{OWN.name}-server"} <= waits_for(f"{MODEL}-prune")


@pytest.mark.slow
def test_where_shared_replicas_stand_in_the_gatekeeper_reads_whether_one_is_ready(tmp_path: Path) -> None:
    plan = planned({**FOR_SEARCH, "when_away": "shared"})
    bodies = {resource.label: resource.body for resource in declared(plan, tmp_path / "site")}
    callers = json.loads(bodies["ConfigMap inference-gateway/callers-tenants"]["data"]["tenants.json"])
    assert callers["pools"].keys() == {OWN.name}
    assert callers["pools"][OWN.name]["metrics"].startswith(f"{OWN.name}-epp.inference-models")
    policy = bodies[f"NetworkPolicy inference-models/{OWN.name}-epp"]["spec"]["ingress"]
    assert "gatekeeper" in json.dumps(policy)
    rules = json.dumps(bodies["PrometheusRule inference-monitoring/inference-platform"])
    assert "OverflowBlind" in rules


def test_a_canary_and_they_go_together(before: SitePlan) -> None:
    """Their tenants have no part in the canary; its share is of all others."""
    plan = planned(FOR_SEARCH, **{f"models__{MODEL}__canary": {"percent": 25, "server": {"replicas": 1, "gpus": 2}}})
    canary = plan.models[MODEL].canary
    assert canary and [revision.name for revision in plan.models[MODEL].serving("search")] == [OWN.name]
    assert [revision.name for revision in plan.models[MODEL].serving("archive")] == [MODEL, canary.name]


def test_they_are_simulated_by_themselves_with_the_tiers_of_their_tenants(plan: SitePlan) -> None:
    outcome = outcome_of(plan, Scenario(), models=(OWN.name,))
    assert [(model.model, model.replicas) for model in outcome.models] == [(OWN.name, 2)]
    tiers = {name: [tier.name for tier in tiers_of(plan, name, {})] for name in (MODEL, OWN.name)}
    assert tiers == {MODEL: ["batch"], OWN.name: ["interactive"]}
