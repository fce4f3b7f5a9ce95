"""A model whose replicas span several nodes: what refuses it, where its groups go, and what a lost node takes."""

from __future__ import annotations

from typing import Any

import pytest

from floor.problems import SiteError
from stacks.plan.placement import Demand, Node, place
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.plan.split_pools import objects_of
from stacks.proof.disaggregation import fewest
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 1", "000.02", "002.12")

SERVER = "models.glm-5-1.server"
NODES = f"{SERVER}.nodes"
# Four nodes with InfiniBand and two groups of two; the other models would need a fifth.
GROUPS: dict[str, Any] = {
    "cluster.rdma_devices": {"system": "network_operator"},
    "cluster.machines.hgx.rdma": "infiniband",
    NODES: 2,
    # The proof decides it, as the layout follows from the nodes.
    f"{SERVER}.gpus": None,
}


def alone(change: dict[str, Any] | None = None) -> dict[str, Any]:
    site = prod()
    site["models"] = {"glm-5-1": site["models"]["glm-5-1"]}
    for tenant in site["tenants"].values():
        tenant["models"] = ["glm-5-1"]
    return changed(site, GROUPS | (change or {}))


def planned(change: dict[str, Any] | None = None) -> SitePlan:
    return plan_values(alone(change), "site.yaml")


def refusals(change: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(SiteError) as caught:
        planned(change)
    assert all(problem.fix for problem in caught.value.problems)
    return {problem.key: problem.what for problem in caught.value.problems}


def test_a_replica_of_two_nodes_has_a_stage_on_each() -> None:
    revision = planned().models["glm-5-1"].stable
    server = revision.server
    assert (server.layout.tensor, server.layout.pipeline, server.nodes, server.pod_gpus) == (8, 2, 2, 8)
    assert server.whole_nodes


def test_one_lost_node_is_one_lost_group() -> None:
    """Two groups on four nodes: each loss ends one, and the node that it leaves alone holds no other."""
    nodes = [Node(name=f"hgx-{number}", gpu="h200-sxm", gpus=8) for number in range(1, 6)]
    demands = [Demand(model="glm-5-1", gpu="h200-sxm", gpus=16, replicas=2)]
    placement = place(nodes[:4], demands)
    assert {loss.verdict for loss in placement.losses} == {"degraded"}
    assert {loss.missing for loss in placement.losses} == {(("glm-5-1", 1),)}
    # With a fifth the rest of the group and the spare one are a group again.
    assert [loss.verdict for loss in place(nodes, demands).losses] == ["recovers"] * 4 + ["spare"]


def test_groups_without_enough_whole_nodes_are_refused_by_whole_nodes() -> None:
    texts = refusals({f"{SERVER}.replicas": 3})
    assert "each takes 16 GPUs of 2 whole nodes" in texts[f"{SERVER}.replicas"]


@pytest.mark.parametrize(
    ("change", "key", "what"),
    [
        ({"cluster.rdma_devices": None}, NODES, "the site offers pods no device for it"),
        ({"cluster.machines.hgx.rdma": "roce"}, NODES, "needs InfiniBand"),
        ({f"{SERVER}.gpus": 16}, f"{SERVER}.gpus", "is of a replica on one node"),
        ({f"{SERVER}.scaling": {"least": 1}}, f"{SERVER}.scaling", "scales Deployments"),
        (
            {f"{SERVER}.speculative": {"method": "ngram", "tokens": 3, "acceptance": 0.5}},
            f"{SERVER}.speculative",
            "does not work with pipeline stages",
        ),
        ({f"{SERVER}.layout": {"tensor": 4, "pipeline": 2}}, f"{SERVER}.layout", "does not fill 2 nodes of 8 GPUs"),
        ({f"{SERVER}.layout": {"tensor": 16}}, f"{SERVER}.layout", "no layer on two of them"),
        ({"cluster.rdma_devices.gpu_bytes_per_s": 1.0e8}, NODES, "between them for"),
        ({NODES: 5}, NODES, "out of range"),
        ({"models.glm-5": {"server": {"nodes": 2}}}, "models.glm-5-1", "is the name of a pod of glm-5"),
        ({"monitoring.gpu_faults": {"on_fault": "drain"}}, NODES, "the watcher of GPU faults does not see"),
        ({"models.glm-5-1.canary": {"percent": 10}}, "models.glm-5-1.canary", "groups of nodes of its own"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(change: dict[str, Any], key: str, what: str) -> None:
    texts = refusals(change)
    assert key in texts, texts
    assert what in texts[key]


def test_simulators_need_no_rdma() -> None:
    trial = {"purpose": "trial", f"{SERVER}.engine": "simulator", "cluster.rdma_devices": None}
    server = planned({**trial, "cluster.machines.hgx.rdma": "none"}).models["glm-5-1"].stable.server
    assert (server.layout.pipeline, server.nodes, server.pod_gpus) == (2, 2, 8)


def test_a_split_has_its_replicas_on_one_node_each() -> None:
    """As the estimate does; the model's own have a half of their GPUs on each of two."""
    plan = planned()
    revision = plan.models["glm-5-1"].stable
    split = fewest(revision.proof.order)
    assert split
    bodies = {body["metadata"]["name"]: body for body in objects_of(plan, revision, split)}
    for role, layout in (("prefill", split.prefill.case.layout), ("decode", split.decode.layout)):
        (engine,) = bodies[f"glm-5-1-{role}"]["spec"]["template"]["spec"]["containers"]
        assert engine["resources"]["limits"]["nvidia.com/gpu"] == str(layout.gpus)
