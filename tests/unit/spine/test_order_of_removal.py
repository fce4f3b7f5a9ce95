"""What `destroy` takes first: the engine removes a resource before those that it depends on.

A finalizer, or a webhook of its operator, holds an object of an operator that has left for good.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.models import model_route, ranking
from lab.plugins.kubernetes import deleting
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import Recorder, requested
from tests.unit.stacks.site_examples import ON_NODES, prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("C.05", "opening 4")

# Group of an API -> the resource that serves its kinds.
SERVED_BY = {
    "mellanox.com": "rdma-devices-network-operator",
    "metallb.io": "load-balancer-addresses-metallb",
    "external-secrets.io": "secrets-external-secrets",
    "keda.sh": "autoscaling-keda",
    "leaderworkerset.x-k8s.io": "groups-lws",
    "cert-manager.io": "certificates-cert-manager",
    "gateway.networking.k8s.io": "gateway-controllers-envoy-gateway",
    "gateway.envoyproxy.io": "gateway-controllers-envoy-gateway",
    "aigateway.envoyproxy.io": "gateway-controllers-ai-gateway",
}
# Those of a group that its operator makes something of; it only reads the others.
SERVED_KINDS = {
    "monitoring.coreos.com/v1:Prometheus": "monitoring-operator",
    "monitoring.coreos.com/v1:Alertmanager": "monitoring-operator",
}
STORAGE = "storage-longhorn"


def everything() -> dict[str, Any]:
    """The annotated site with each optional part that it leaves out."""
    site = copy.deepcopy(prod())
    site["cluster"]["rdma_devices"]["system"] = "network_operator"
    site["cluster"]["machines"]["hgx"]["rdma"] = "infiniband"
    large = site["models"]["glm-5-1"]["server"]
    site["models"]["glm-5-1"]["server"] = {**large, "gpus": None, "replicas": 1, "nodes": 2}
    site["secrets"] = {
        "system": "external_secrets",
        "store": {"kubernetes": {"namespace": "platform-keys"}},
        "remote": {name: {"key": name} for name in ("site-ca", "hub-token", "backup-target", "alertmanager-config")},
    }
    site["models"]["qwen3-32b"]["server"]["scaling"] = {"least": 2}
    return site


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the engine gets for each resource, by name."""
    site = plan_values(everything(), "site").site
    _, requests = requested(site, tmp_path_factory.mktemp("site"), Recorder())
    return requests


def before(made: dict[str, Any], name: str) -> set[str]:
    """Everything that is removed after this one."""
    seen, open_ = set[str](), [name]
    while open_:
        request = made.get(open_.pop())
        for urn in request.dependencies if request else ():
            needed = urn.rpartition("::")[2]
            if needed not in seen:
                seen.add(needed)
                open_.append(needed)
    return seen


def steps_of_removal(made: dict[str, Any], model: str) -> list[set[str]]:
    """What the engine deletes together when a model leaves, first to last.

    By levels of what depends on nothing else that leaves, in reverse, and it waits for each
    (pulumi/pulumi@v3.246.0 pkg/resource/deploy/step_generator.go, ScheduleDeletes).
    """
    leaving = {name for name in made if name == model or name.startswith(f"{model}-") or name.endswith(f".{model}")}
    needed = {
        name: {urn.rpartition("::")[2] for urn in (*made[name].dependencies, made[name].parent)} & leaving - {name}
        for name in leaving
    }
    steps: list[set[str]] = []
    while leaving:
        steps.insert(0, {name for name in leaving if not needed[name] & leaving})
        leaving -= steps[0]
    return steps


def served(made: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Objects of kinds that an operator of the program serves, and this one; marks on others' objects stay."""
    for name, request in made.items():
        package, _, kind = request.type.partition(":")
        group = kind.partition("/")[0]
        operator = SERVED_KINDS.get(kind) or SERVED_BY.get(group)
        if package == "kubernetes" and operator is not None and not request.retainOnDelete:
            yield name, operator


def test_custom_resources_leave_before_their_operators(made: dict[str, Any]) -> None:
    objects = dict(served(made))
    assert set(objects.values()) == {*SERVED_BY.values(), *SERVED_KINDS.values()} - {SERVED_BY["metallb.io"]}
    assert [name for name, operator in objects.items() if operator not in before(made, name)] == []


def test_volumes_leave_before_what_stores_them(made: dict[str, Any]) -> None:
    claims = [name for name, request in made.items() if request.type.endswith(":PersistentVolumeClaim")]
    # Theirs are made by their operator, and leave with their namespace.
    servers = ["monitoring-prometheus", "monitoring-alertmanager", "inference-monitoring-namespace"]
    assert len(claims) == 2
    assert [name for name in (*claims, *servers) if STORAGE not in before(made, name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("place", [{}, ON_NODES], ids=["shared", "nodes"])
def test_replicas_and_pickers_of_a_model_that_leaves_drain_at_the_same_time(
    tmp_path: Path, place: dict[str, Any]
) -> None:
    """An ending one holds its streams for as long as the longest may take, and the engine waits for it."""
    site = plan_values(changed(prod(), place), "site").site
    _, requests = requested(site, tmp_path, Recorder())
    steps = steps_of_removal(requests, "qwen3-32b")
    assert sum(map(len, steps)) > 20
    draining = [{name for name in step if requests[name].type == "kubernetes:apps/v1:Deployment"} for step in steps]
    assert [names for names in draining if names] == [{"qwen3-32b-server", "qwen3-32b-picker"}]


def test_gpus_leave_after_those_who_compute_on_them(made: dict[str, Any]) -> None:
    servers = [name for name in made if name.endswith("-server")]
    assert len(servers) == 2
    assert [name for name in servers if "gpu-stack-gpu-operator" not in before(made, name)] == []


def test_what_the_ai_gateway_holds_is_deleted_in_the_background() -> None:
    """Kinds with its finalizer: another writer at the moment of deletion would keep the object."""
    route = model_route.ai_gateway_route(
        "glm", "m", model="glm", gateway="inference", gateway_namespace="g", request_timeout_s=60, owned_by="zai"
    )
    _, backend = ranking.ranking_backend("ranks", "m", port=8000)
    assert [deleting.propagation(body) for body in (route, backend)] == ["Background", "Background"]
