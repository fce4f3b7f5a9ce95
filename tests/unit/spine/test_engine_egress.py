"""What the pods that bring weights may reach, by where these come from; engines reach nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from components.models.weights import egress, network_policy
from components.specs.weights import WeightsSpec
from stacks.plan.site_plan import plan_file
from tests.unit.spine.test_builders import ROOT

pytestmark = pytest.mark.row("000.03", "004.11")


def spec_of(source: WeightsSpec) -> dict[str, Any]:
    plan = plan_file(ROOT / "Pulumi.prod.yaml").models["qwen3-32b"].stable.weights
    assert plan
    made: dict[str, Any] = network_policy("chat", "m", replace(plan, egress=egress(source)))["spec"]
    return made


def test_weights_on_the_volume_need_nobody() -> None:
    spec = spec_of(WeightsSpec(source="volume"))
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in spec


def test_the_hub_needs_names_and_https() -> None:
    spec = spec_of(WeightsSpec())
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    (rule,) = spec["egress"]
    assert "to" not in rule
    assert [(port["protocol"], port["port"]) for port in rule["ports"]] == [("UDP", 53), ("TCP", 53), ("TCP", 443)]


def test_the_way_to_a_mirror_is_not_restricted() -> None:
    spec = spec_of(WeightsSpec(source="mirror", mirror="https://hub.example"))
    assert spec["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize("file", ["Pulumi.lab.yaml", "Pulumi.prod.yaml"])
def test_no_engine_reaches_anything_and_the_job_reaches_the_source(file: str) -> None:
    plan = plan_file(ROOT / file)
    for revision in plan.revisions:
        assert revision.engine.egress == []
        if revision.weights:
            assert revision.weights.egress == egress(plan.site.storage.weights)
