"""Checks of weights on each node's own disk, with a node that lacks them and a DaemonSet of another order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from components.models import model_server, node_weights
from stacks.plan.models import MODELS_NAMESPACE
from stacks.plan.site_plan import SitePlan, plan_values
from tests.live import test_live_models as models
from tests.live.running import Object, RunningSite
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("opening 5", "003.09")

PLAN = plan_values(changed(prod(), ON_NODES), "Pulumi.prod.yaml")
STORES = PLAN.stores
NODES = ("hgx-1", "hgx-2")
GOOD = {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 2}


@dataclass(frozen=True, kw_only=True)
class Recorded(RunningSite):
    """What the API server has of both models: end of the path -> object."""

    objects: Mapping[str, Object] = field(default_factory=dict)
    mounted: Mapping[str, str] = field(default_factory=dict)
    """Claim that the replicas of a model mount."""

    def read(self, path: str, **_: str) -> Object:
        return next(body for end, body in self.objects.items() if path.endswith(end))

    def pods(self, namespace: str | None, labels: Mapping[str, str]) -> list[Object]:
        assert namespace == MODELS_NAMESPACE
        claim = next((name for model, name in self.mounted.items() if model_server.labels(model) == labels), "none")
        volumes = [{"name": "weights", "persistentVolumeClaim": {"claimName": claim}}]
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return [
            {"metadata": {"name": f"on-{node}"}, "spec": {"nodeName": node, "volumes": volumes}, "status": ready}
            for node in NODES
        ]


def running(change: Callable[[dict[str, Object]], object] = lambda _: None, plan: SitePlan = PLAN) -> Recorded:
    objects: dict[str, Object] = {}
    for model, store in STORES.items():
        body = node_weights.daemon_set(model, MODELS_NAMESPACE, store, "hopper")
        objects[f"daemonsets/{model}-weights"] = {**body, "status": dict(GOOD)}
        objects[store.claim] = {**node_weights.claim(MODELS_NAMESPACE, store), "status": {"phase": "Bound"}}
    objects = copy.deepcopy(objects)
    change(objects)
    mounted = {model: store.claim for model, store in STORES.items()}
    return Recorded(name="prod", plan=plan, endpoint="", keys={}, kubeconfig={}, objects=objects, mounted=mounted)


QWEN = "daemonsets/qwen3-32b-weights"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda objects: objects[QWEN]["status"].update(numberReady=1), "qwen3-32b-weights: 1 of 2 nodes have what"),
        (lambda objects: objects[QWEN]["status"].update(updatedNumberScheduled=1), "2 of 2 nodes have what is wanted"),
        (lambda objects: objects[QWEN].pop("status"), "0 of 0 nodes"),
        (
            lambda objects: objects[QWEN]["spec"]["template"]["spec"]["initContainers"][0].update(args=["--digest=0"]),
            "qwen3-32b-weights brings another order than the site's",
        ),
    ],
)
def test_a_node_without_weights_is_found(change: Callable[[dict[str, Object]], Any], reason: str) -> None:
    check = models.test_every_gpu_node_has_the_weights_of_every_model
    lines: list[str] = []
    check(running(), lines.append)
    assert lines[0] == "glm-5-1-weights: 2 of 2 nodes; hgx-1 filled, hgx-2 filled"
    with pytest.raises(AssertionError, match=reason):
        check(running(change), lines.append)


def test_a_site_with_shared_volumes_has_no_such_nodes() -> None:
    shared = plan_values(prod(), "Pulumi.prod.yaml")
    with pytest.raises(pytest.skip.Exception, match="the site's weights are on shared volumes"):
        models.test_every_gpu_node_has_the_weights_of_every_model(running(plan=shared), lambda _: None)


def test_a_claim_that_is_not_bound_or_not_mounted_is_found() -> None:
    check = models.test_all_replicas_of_a_model_mount_its_one_volume
    check(running(), lambda _: None)
    claim = STORES["qwen3-32b"].claim
    with pytest.raises(AssertionError, match=f"{claim} is Pending"):
        check(running(lambda objects: objects[claim]["status"].update(phase="Pending")), lambda _: None)
