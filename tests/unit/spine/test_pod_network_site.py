"""The whole program on a site whose program changes Cilium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.listing import RULES
from policy.model import Resource, SiteFacts, violations
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.01")


def cilium_by_program(tmp_path: Path) -> tuple[Recorder, dict[str, Any]]:
    """The reference site whose program changes Cilium, with agents that every rule would refuse."""
    site = plan_values(changed(prod(), {"cluster.machines.cilium_owner": "program"}), "site.yaml").site
    container = {"name": "cilium-agent", "image": "cilium:latest", "securityContext": {"privileged": True}}
    agents = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "cilium", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"hostNetwork": True, "containers": [container]}}},
    }
    recorder = Recorder()
    return recorder, requested(site, tmp_path, recorder, manifest=yaml.safe_dump(agents))[1]


@pytest.mark.slow
def test_by_choice_the_program_changes_the_cilium_that_the_machines_made(tmp_path: Path) -> None:
    """On a cluster whose machines are up, and before what its operator alone serves."""
    recorder, requests = cilium_by_program(tmp_path)

    def waits(name: str) -> set[str]:
        return {urn.rpartition("::")[2] for urn in requests[name].dependencies}

    agents = "pod-network-daemonset-kube-system-cilium"
    assert "machines-nodes-cp-1" in waits(agents)
    assert agents in waits("load-balancer-addresses-announcement")
    assert recorder.resources["pod-network-leftovers"].inputs["stdin"] == "apps/v1 DaemonSet kube-system/cilium"


@pytest.mark.slow
def test_no_rule_looks_into_the_chart_that_talos_makes(tmp_path: Path) -> None:
    recorder, _ = cilium_by_program(tmp_path)
    declared = recorder.resources["pod-network-daemonset-kube-system-cilium"]
    seen = Resource(type=declared.typ, name=declared.name, body=declared.inputs)
    facts = SiteFacts(name="prod", sovereign=True)
    assert violations([seen], facts, RULES) == []
    meta = {**declared.inputs["metadata"], "annotations": {}}
    by_hand = Resource(type=declared.typ, name=declared.name, body={**declared.inputs, "metadata": meta})
    assert {broken.rule for broken in violations([by_hand], facts, RULES)} >= {"no-host-access", "image-pinned"}
