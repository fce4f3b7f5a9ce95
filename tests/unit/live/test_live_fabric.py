"""The check that each GPU has joined the fabric of its node, which no lab has."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from stacks.plan.cluster import PlannedNode
from stacks.plan.site_plan import SitePlan, plan_file
from tests.live import test_live_monitoring as monitoring
from tests.live.running import Object, RunningSite

pytestmark = pytest.mark.row("opening 5", "000.12")

PROD = plan_file(Path(__file__).parents[3] / "Pulumi.prod.yaml")
JOINED = 3
check = monitoring.test_every_gpu_has_joined_the_fabric_of_its_node


@dataclass(frozen=True, kw_only=True)
class Fabric(RunningSite):
    """A site whose DCGM has these statuses of the fabric manager, by node and GPU."""

    statuses: dict[tuple[str, int], int] = field(default_factory=dict)

    def prometheus(self, path: str, **parameters: str) -> Object:
        assert (path, parameters) == ("query", {"query": 'DCGM_FI_DEV_FABRIC_MANAGER_STATUS{job="gpus"}'})
        return {
            "result": [
                {"metric": {"node": node, "gpu": str(gpu)}, "value": [0, str(status)]}
                for (node, gpu), status in self.statuses.items()
            ]
        }


def machines() -> tuple[PlannedNode, ...]:
    assert PROD.machines is not None
    return tuple(PROD.machines.nodes)


def site(changed: dict[tuple[str, int], int] | None = None, *, without: str = "", plan: SitePlan = PROD) -> Fabric:
    hgx = [node.name for node in machines() if node.spec.role == "hgx" and node.name != without]
    statuses = {(node, gpu): JOINED for node in hgx for gpu in range(8)} | (changed or {})
    return Fabric(name="prod", plan=plan, endpoint="", keys={}, kubeconfig={}, statuses=statuses)


def unseen(_: str) -> None:
    """No evidence."""


def test_gpus_that_have_joined_pass_and_are_in_the_evidence() -> None:
    evidence: list[str] = []
    check(site(), machines(), evidence.append)
    assert len(evidence) == len([node for node in machines() if node.spec.role == "hgx"]) > 1
    assert evidence[0] == "hgx-1: " + ", ".join(f"GPU {gpu} 3" for gpu in range(8))


@pytest.mark.parametrize("status", [1, 2, 4])
def test_a_gpu_that_has_not_joined_is_found(status: int) -> None:
    with pytest.raises(AssertionError, match=rf"^GPU 5 of hgx-2 has status {status}, not 3 \(docs/runbooks/"):
        check(site({("hgx-2", 5): status}), machines(), unseen)


def test_a_node_that_reports_no_status_is_found() -> None:
    with pytest.raises(AssertionError, match="hgx-1 has no DCGM_FI_DEV_FABRIC_MANAGER_STATUS"):
        check(site(without="hgx-1"), machines(), unseen)


def test_machines_without_the_fabric_manager_or_with_cut_gpus_are_left_out() -> None:
    """What DCGM reports of a GPU that is cut is not known."""
    planes = tuple(node for node in machines() if node.is_control_plane)
    cut = tuple(
        replace(node, spec=node.spec.model_copy(update={"mig": "all-1g.18gb"}))
        for node in machines()
        if node.spec.role == "hgx"
    )
    for left_out in (planes, cut):
        with pytest.raises(pytest.skip.Exception, match="no machine with the fabric manager"):
            check(site(), left_out, unseen)


def test_a_site_that_does_not_install_the_exporter_is_skipped() -> None:
    cluster = PROD.site.cluster.model_copy(update={"gpu_stack": "external"})
    plan = replace(PROD, site=PROD.site.model_copy(update={"cluster": cluster}))
    with pytest.raises(pytest.skip.Exception, match="does not let the program install what is measured as gpus"):
        check(site(plan=plan), machines(), unseen)
