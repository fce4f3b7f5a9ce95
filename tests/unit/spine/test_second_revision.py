"""A second revision of a model beside the first: what a site has once per revision is not in its way."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from floor.revision_ids import RevisionId
from policy.listing import RULES
from policy.model import Resource, SiteFacts, violations
from sitectl.change import cold_starts
from sitectl.change.changes import Change
from sitectl.change.report import report
from stacks.plan.models import plan_further
from stacks.plan.placement import place
from stacks.plan.placing import demands_of, nodes_of
from stacks.plan.site_plan import SitePlan, plan_file, plan_site
from tests.unit.spine.test_platform import Recorder, requested

PROD = Path(__file__).parents[3] / "Pulumi.prod.yaml"
NAME = "qwen3-32b"
# Objects that list what all revisions have.
SHARED = {"EnvoyPatchPolicy inference-gateway/front-door", "PrometheusRule inference-monitoring/inference-platform"}


def with_second(plan: SitePlan) -> SitePlan:
    """The plan with a canary of one model, whose streams may be a minute longer."""
    model = plan.models[NAME]
    server = model.stable.spec.server.model_copy(update={"longest_stream_s": 660})
    second = plan_further(
        plan.site, NAME, model.stable.spec.model_copy(update={"server": server}), plan.versions.images
    )
    both = replace(model, revisions={**model.revisions, second.id: second})
    return replace(plan, models={**plan.models, NAME: both})


@pytest.fixture(scope="module")
def plan() -> SitePlan:
    return with_second(plan_file(PROD))


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


def test_each_has_its_proof_and_its_place(plan: SitePlan) -> None:
    name, first = canary_of(plan), plan_site(plan.site)
    assert plan.proofs.keys() == plan.load_s.keys() == plan.weight_bytes.keys() == {*first.proofs, name}
    assert plan.proofs[NAME] == first.proofs[NAME]
    assert plan.stores[name].claim != plan.stores[NAME].claim
    placement = place(nodes_of(plan.site) or [], demands_of(plan.proofs, plan.specs))
    assert Counter(replica.model for replica in placement.replicas)[name] == plan.named[name].spec.server.replicas
    assert name in plan.placement_text + "".join(plan.texts)


def declared(tmp_path: Path) -> list[Resource]:
    tmp_path.mkdir()
    recorder = Recorder()
    _, requests = requested(plan_file(PROD).site, tmp_path, recorder)
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


def test_its_objects_clash_with_none_keep_the_rules_and_have_verdicts_of_their_own(
    plan: SitePlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = declared(tmp_path / "before")
    monkeypatch.setattr("tests.unit.spine.test_platform.plan_site", lambda *planned: with_second(plan_site(*planned)))
    after, name = declared(tmp_path / "after"), canary_of(plan)
    assert after != before
    old, new = ({resource.label: resource for resource in some} for some in (before, after))
    own = [resource for label, resource in new.items() if label not in old]
    assert {label for label in old if old[label].kind and old[label].body != new[label].body} == SHARED
    kinds = Counter(resource.kind for resource in own if resource.kind)
    assert kinds == Counter(resource.kind for resource in old.values() if resource.kind and NAME in resource.label)
    facts = SiteFacts(name="prod", load_s=plan.load_s)
    assert {violation.resource for violation in violations(after, facts, RULES)} == {
        violation.resource for violation in violations(before, facts, RULES)
    }
    changes = [Change(op="create", type=added.type, name=added.name, after=added.body) for added in own if added.kind]
    rows = report("prod", changes, {"search": {"glm-5-1"}, "chat": {NAME}}, starts=cold_starts.of_plan(plan)).rows
    of_canary = [row for row in rows if row.model]
    assert {(row.model, row.tenants) for row in of_canary} == {(name, ("chat",))}
    server = next(row for row in of_canary if row.resource == f"Deployment inference-models/{name}")
    assert server.expected_start_s == cold_starts.of_plan(plan)[name].expected_s(server)
