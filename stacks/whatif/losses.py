"""Replicas that a scenario takes from each model of a site: with a node, or as GPUs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stacks.plan.placement import Placement, place
from stacks.plan.placing import demands_of, nodes_of
from stacks.plan.site_plan import SitePlan
from stacks.whatif.refusal import NoScenarioError, no_such
from stacks.whatif.scenario import WORST, Scenario


@dataclass(frozen=True, kw_only=True)
class LostReplicas:
    """Replicas of one model that a scenario takes away."""

    returning: int = 0
    """That find room on other nodes."""
    for_good: int = 0

    @property
    def count(self) -> int:
        return self.returning + self.for_good


def losses_of(plan: SitePlan, scenario: Scenario) -> tuple[Scenario, Mapping[str, LostReplicas]]:
    """The scenario with its node by name, and the replicas that each model loses. Raises NoScenarioError."""
    losses: dict[str, LostReplicas] = {}
    if scenario.lose_gpus is not None:
        for name, proof in plan.proofs.items():
            # A GPU that is cut takes all its slices with it.
            lost = round(scenario.lose_gpus / proof.order.hardware.share)
            count = min(proof.case.replicas, math.ceil(lost / proof.case.layout.gpus))
            losses[name] = LostReplicas(for_good=count)
    if scenario.lose_node is None:
        return scenario, losses
    nodes = nodes_of(plan.site)
    if not nodes:
        raise NoScenarioError(
            "the site does not list its nodes, so none can be lost", fix="lose GPUs instead, such as --lose-gpus 8"
        )
    placement = place(nodes, demands_of(plan.proofs, plan.specs))
    names = [node.name for node in nodes]
    if scenario.lose_node not in (WORST, *names):
        raise no_such("node with GPUs", [scenario.lose_node], [WORST, *names])
    node = _worst(placement) if scenario.lose_node == WORST else scenario.lose_node
    node_loss = next(loss for loss in placement.losses if loss.node == node)
    missing, out = dict(node_loss.missing), dict(node_loss.out)
    for name in plan.named:
        earlier = losses.get(name, LostReplicas())
        gone = missing.get(name, 0)
        losses[name] = LostReplicas(returning=out.get(name, 0) - gone, for_good=gone + earlier.for_good)
    return replace(scenario, lose_node=node), losses


def _worst(placement: Placement) -> str:
    """The node whose failure leaves most replicas missing, and of those the one that held most GPUs."""

    def harm(node: str) -> tuple[int, int, int]:
        loss = next(loss for loss in placement.losses if loss.node == node)
        held = sum(replica.gpus_per_node for replica in placement.replicas if node in replica.nodes)
        severity = ("spare", "recovers", "degraded", "down").index(loss.verdict)
        return severity, sum(count for _, count in loss.missing), held

    return max(sorted(placement.free), key=harm)
