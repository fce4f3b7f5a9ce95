"""Counts of replicas that a preview calls reached find their nodes on the real scheduler, and others do not.

Of racks that are nearly full, and of random sites with all that takes GPUs: ranges down to none, canaries, dedicated
replicas, adapters. A quarter of an hour each.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from kubernetes import client

from components.placing import spread
from floor import gpu_nodes
from lab.cluster.parts import present, spec_of
from lab.paths import Lab
from stacks.plan.placement import Demand, Node
from stacks.plan.scaling import reach
from tests.lab.cluster.scaled_sites import combinations, random_site
from tests.lab.cluster_by_hand import bring_up_cluster
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("opening 21", "002.12")

NODES = [Node(name=f"hgx-{number}", gpu="h200-sxm", gpus=8) for number in range(1, 5)]


@pytest.fixture(scope="module")
def cluster(spare_lab: Lab) -> Lab:
    bring_up_cluster(spare_lab, hgx=len(NODES))
    return spare_lab


def demands_of(chance: Random) -> list[Demand]:
    """Of a rack that is nearly full: up to three models of replicas of 1, 2, 4 or 8 GPUs, which have most of it."""
    sizes, left, demands = chance.sample([8, 4, 2, 1], chance.randint(1, 3)), 8 * len(NODES) + 4, []
    for size in sorted(sizes, reverse=True):
        count = chance.randint(1, max(1, left // size))
        left -= count * size
        demands.append(Demand(model=f"m{size}", gpu="h200-sxm", gpus=size, replicas=count))
    return demands


def pod(demand: Demand, number: int) -> client.V1Pod:
    """With what a replica's placement hangs on; its image is nowhere."""
    labels = {"app": demand.model}
    gpus = {gpu_nodes.RESOURCE: str(demand.gpus)}
    container = {"name": "engine", "image": "registry.example/none:1", "resources": {"limits": gpus, "requests": gpus}}
    spec: dict[str, Any] = {
        "containers": [container],
        "tolerations": [{"key": gpu_nodes.TAINT_KEY, "operator": "Exists", "effect": gpu_nodes.TAINT_EFFECT}],
        "terminationGracePeriodSeconds": 0,
        **spread(labels, 2),
    }
    return client.V1Pod.model_validate(
        {"metadata": {"name": f"{demand.model}-{number}", "labels": labels}, "spec": spec}
    )


def outcomes(core: client.CoreV1Api, namespace: str, count: int) -> list[tuple[str, bool]]:
    """The model of each pod, and whether it has its node, once the scheduler has looked at all; empty before."""
    pods = core.list_namespaced_pod(namespace).items
    looked_at = [
        (present(present(replica.metadata).labels)["app"], spec_of(replica).node_name is not None)
        for replica in pods
        if spec_of(replica).node_name
        or any(condition.reason == "Unschedulable" for condition in present(replica.status).conditions or [])
    ]
    return looked_at if len(looked_at) == count else []


def schedule(
    core: client.CoreV1Api, namespace: str, demands: Sequence[Demand], chance: Random, of: str = ""
) -> list[bool]:
    """Whether each replica has its node, of all models or of one. They start in a random order, after all of another
    order's have ended."""
    eventually(lambda: not core.list_namespaced_pod(namespace).items)
    replicas = [(demand, number) for demand in demands for number in range(demand.replicas)]
    chance.shuffle(replicas)
    for demand, number in replicas:
        core.create_namespaced_pod(namespace, pod(demand, number))
    looked_at = eventually(lambda: outcomes(core, namespace, len(replicas)))
    placed = [has for model, has in looked_at if of in ("", model)]
    core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
    return placed


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 212), marks=pytest.mark.exhaustive)], ids=len)
def test_what_is_always_reached_is_scheduled_and_what_never_is_not(
    cluster: Lab, core: client.CoreV1Api, namespace: str, seeds: range
) -> None:
    answers = set()
    for seed in seeds:
        chance = Random(seed)  # noqa: S311 - the same racks each time
        demands = demands_of(chance)
        answer = reach(NODES, demands)
        answers.add(answer)
        if answer != "maybe":
            assert all(schedule(core, namespace, demands, chance)) == (answer == "always"), (seed, demands)
    assert answers == {"always", "maybe", "never"}


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 206), marks=pytest.mark.exhaustive)], ids=len)
def test_what_a_preview_of_a_random_site_takes_is_scheduled_and_what_it_refuses_is_not(
    cluster: Lab, core: client.CoreV1Api, namespace: str, seeds: range
) -> None:
    answers = []
    for seed in seeds:
        chance = Random(seed)  # noqa: S311 - the same sites each time
        for combination in combinations(random_site(chance), chance):
            answers.append(combination.placed)
            placed = schedule(core, namespace, combination.demands, chance, combination.own)
            assert all(placed) == combination.placed, (seed, combination)
    assert {*answers} == {True, False}
    assert len(answers) >= len(seeds)
