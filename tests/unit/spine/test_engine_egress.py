"""What an engine's pods may reach, by where its weights come from."""

from __future__ import annotations

from typing import Any

import pytest

from components.models.model_server import network_policy
from components.models.weights import egress
from components.specs.weights import WeightsSpec
from stacks.plan.site_plan import plan_file
from tests.unit.spine.test_builders import ROOT

pytestmark = pytest.mark.row("000.03", "004.11")


def spec_of(source: WeightsSpec) -> dict[str, Any]:
    made: dict[str, Any] = network_policy("chat", "m", [], egress(source))["spec"]
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
def test_engines_of_a_site_have_the_egress_of_its_weights(file: str) -> None:
    """The lab's simulators download nothing."""
    plan = plan_file(ROOT / file)
    for revision in plan.revisions:
        simulated = revision.spec.server.engine == "simulator"
        assert revision.engine.egress == ([] if simulated else egress(plan.site.storage.weights))
