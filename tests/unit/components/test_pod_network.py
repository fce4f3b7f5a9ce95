"""Cilium's objects where the program changes them: in which order, as whose, and that no engine deletes one."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from pulumi.runtime.rpc import deserialize_properties
from pulumi.runtime.stack import wait_for_rpcs

from components.machines.pod_network import PodNetwork, PodNetworkArgs
from floor.metadata import FIELD_MANAGER
from tests.unit.pulumi_runtime import Recorder, in_own_runtime

pytestmark = pytest.mark.row("C.01")


def an_object(kind: str, name: str, namespace: str | None = "kube-system", api: str = "v1") -> dict[str, Any]:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api, "kind": kind, "metadata": meta}


OBJECTS = [
    an_object("DaemonSet", "cilium", api="apps/v1"),
    an_object("Deployment", "cilium-operator", api="apps/v1"),
    an_object("ConfigMap", "cilium-config"),
    an_object("ClusterRole", "cilium", None, "rbac.authorization.k8s.io/v1"),
    an_object("Namespace", "cilium-secrets", None),
]


def requests(**more: Any) -> dict[str, Any]:
    recorder = Recorder()
    given = {"objects": OBJECTS, "nodes": 40, "operators_fit": True, "needs": [], **more}

    async def run() -> None:
        PodNetwork("pod-network", PodNetworkArgs(kubeconfig=pulumi.Output.secret("server: here"), **given))
        await wait_for_rpcs()

    in_own_runtime(Recorder().mocks, run, monitor=recorder)
    return recorder.requests


def bodies(seen: dict[str, Any]) -> dict[str, Any]:
    return {name: deserialize_properties(request.object) for name, request in seen.items() if request.custom}


def test_what_pods_read_comes_before_the_operator_and_that_before_each_node() -> None:
    seen = requests()
    waits = {
        name.removeprefix("pod-network-"): {urn.rpartition("::pod-network-")[2] for urn in request.dependencies}
        for name, request in seen.items()
    }
    space, operator, agents = (
        "namespace-cilium-secrets",
        "deployment-kube-system-cilium-operator",
        "daemonset-kube-system-cilium",
    )
    read = {"configmap-kube-system-cilium-config", "clusterrole-cilium"}
    assert waits[space] == set()
    assert all(waits[name] == {space} for name in read)
    assert waits[operator] == {space, *read}
    assert waits[agents] == {space, *read, operator}
    assert waits["leftovers"] == {space, *read, operator, agents}
    assert seen[f"pod-network-{agents}"].customTimeouts.create == "6000s"


def test_the_engine_never_deletes_one_and_applies_them_as_talos_has() -> None:
    """A field that a newer chart lacks is removed, as no other manager has it."""
    seen = requests()
    objects = {name: body for name, body in bodies(seen).items() if "kind" in body}
    assert len(objects) == len(OBJECTS)
    assert all(seen[name].retainOnDelete for name in objects)
    managers = {body["metadata"]["annotations"][FIELD_MANAGER] for body in objects.values()}
    assert managers == {"talos"}


def test_an_operator_without_room_for_both_pods_is_not_waited_for() -> None:
    skipped = {
        name for name, body in bodies(requests(operators_fit=False)).items() if "pulumi.com/skipAwait" in str(body)
    }
    assert skipped == {"pod-network-deployment-kube-system-cilium-operator"}


def test_what_a_newer_manifest_lacks_is_left_to_a_command() -> None:
    """Which objects these are is in a preview; the kubeconfig is not."""
    given = bodies(requests())["pod-network-leftovers"]
    assert given["stdin"].splitlines() == [
        "apps/v1 DaemonSet kube-system/cilium",
        "apps/v1 Deployment kube-system/cilium-operator",
        "rbac.authorization.k8s.io/v1 ClusterRole cilium",
        "v1 ConfigMap kube-system/cilium-config",
        "v1 Namespace cilium-secrets",
    ]
    assert "server: here" not in str({**given, "environment": None})
    assert "delete" not in given
