"""Verdicts on the way to a gatekeeper and back, out of what the program declares for each step of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from policy.model import Resource
from sitectl.change.changes import Change, between
from sitectl.change.report import report
from sitectl.change.verdicts.classify import classify
from sitectl.change.verdicts.model import Severity, Verdict
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import declare
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 3", "000.34")

STEPS: Mapping[str, Mapping[str, Any]] = {
    "gateway": {"decided_by": "gateway"},
    "both": {"decided_by": "gatekeeper", "keep_both": True},
    "gatekeeper": {"decided_by": "gatekeeper"},
    "back": {"decided_by": "gateway", "keep_both": True},
}
PATH = (("gateway", "both"), ("both", "gatekeeper"), ("gatekeeper", "back"), ("back", "gateway"))
AT_ONCE = (("gateway", "gatekeeper"), ("gatekeeper", "gateway"))
# What lets clients notice, and is the same on any site's way: listeners drain, and a counter of objects starts again.
LISTENERS = {"EnvoyPatchPolicy inference-gateway/front-door", "EnvoyPatchPolicy inference-gateway/openai-errors"}
LISTENERS |= {"EnvoyExtensionPolicy inference-gateway/tiers", "Deployment inference-monitoring/kube-state-metrics"}
# They order by tiers as long as there is a gatekeeper.
REPLICAS = {f"Deployment inference-models/{model}" for model in ("glm-5-1", "qwen3-32b")}


@cache
def declared(step: str, base: Path) -> tuple[Resource, ...]:
    folder = base / step
    folder.mkdir()
    made = declare(plan_values(changed(prod(), {"callers": STEPS[step]}), "site.yaml").site, folder)[0].resources
    resources = (Resource(type=args.typ, name=name, body=args.inputs) for name, args in made.items())
    return tuple(resource for resource in resources if not resource.type.startswith("inference-platform:"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("steps")


def rows(changes: list[Change]) -> list[Verdict]:
    return report("prod", changes, {"search": set(), "archive": set()}).rows


@pytest.mark.slow
@pytest.mark.parametrize("step", PATH, ids="-".join)
def test_no_step_of_the_way_takes_anything_from_callers(step: tuple[str, str], base: Path) -> None:
    before, after = (declared(name, base) for name in step)
    felt = [row for row in rows(between(before, after)) if row.severity != Severity.LIVE]
    rolled = {row.resource for row in felt} & REPLICAS
    assert rolled == (REPLICAS if step in {PATH[0], PATH[-1]} else set())
    assert {row.resource for row in felt} <= LISTENERS | rolled
    assert {row.severity for row in felt} <= {Severity.RESTARTS}
    assert not [row for row in felt if "no limit" in row.reason]


@pytest.mark.parametrize("step", AT_ONCE, ids="-".join)
def test_both_steps_in_one_are_felt_on_connections_that_are_open(step: tuple[str, str], base: Path) -> None:
    before, after = (declared(name, base) for name in step)
    felt = [row for row in rows(between(before, after)) if row.severity <= Severity.REPLACED]
    assert felt
    assert {row.severity for row in felt} == {Severity.REPLACED}
    assert all("keep_both" in row.reason and "connections that are open" in row.what for row in felt)


def without_archive(resources: tuple[Resource, ...]) -> list[Resource]:
    """As a site that has this tenant no more declares them."""
    kept = [resource for resource in resources if "keys-archive" not in resource.label]
    place = next(place for place, resource in enumerate(kept) if resource.label.endswith("/callers-tenants"))
    text = kept[place].body["data"]["tenants.json"].replace('"archive": {', '"archive": null, "was": {')
    kept[place] = replace(kept[place], body={**kept[place].body, "data": {"tenants.json": text}})
    return kept


@pytest.mark.parametrize("before", ["both", "gateway"])
def test_a_tenant_that_goes_on_the_way_loses_its_keys(before: str, base: Path) -> None:
    judged = rows(between(declared(before, base), without_archive(declared("gatekeeper", base))))
    lost = [row for row in judged if row.severity <= Severity.REPLACED and row.tenants == ("archive",)]
    assert Severity.IRREVERSIBLE in {row.severity for row in lost}
    assert any("loses qwen3-32b" in row.what for row in lost)


def test_a_volume_of_counters_has_counts_on_it_and_no_weights() -> None:
    body = {"kind": "PersistentVolumeClaim", "metadata": {"name": "limit-counters-fast", "namespace": "g"}}
    claim = Change(op="delete", type="kubernetes:core/v1:PersistentVolumeClaim", name="limit-counters", before=body)
    (row,) = classify(claim)
    assert row.severity == Severity.REPLACED
    assert "counts" in row.what
    assert "weights" not in row.what + row.reason
