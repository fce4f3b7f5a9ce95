"""Objects are registered as the SDK's own classes of their kinds would register them, so that a state fits both."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pulumi
import pytest
from pulumi.runtime.stack import wait_for_rpcs

from components.objects import declare
from floor.metadata import FIELD_MANAGER
from tests.unit.pulumi_runtime import Recorder, in_own_runtime

pytestmark = pytest.mark.row("C.02")

META = {"name": "one", "namespace": "space", "labels": {"a": "b"}}
# Each kind of Kubernetes itself that the platform declares, with every top-level key that its builders write.
BODIES: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}},
    {"apiVersion": "v1", "kind": "Namespace"},
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"accessModes": ["ReadWriteMany"]}},
    {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": {"key": "quiet-word"}},
    {"apiVersion": "v1", "kind": "Secret", "data": {"key": "cXVpZXQ="}},
    {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": False},
    {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2}},
    {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": {"podSelector": {}}},
    {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"maxUnavailable": 1}},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [{"verbs": ["get"]}]},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "roleRef": {"name": "a"}, "subjects": []},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "roleRef": {"name": "a"}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "spec": {}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "spec": {}},
]
SDK_MODULES = {"rbac.authorization.k8s.io": "rbac", "networking.k8s.io": "networking", "v1": "core"} | {
    "admissionregistration.k8s.io": "admissionregistration"
}


def of_the_sdk(body: dict[str, Any]) -> None:
    group = body["apiVersion"].partition("/")[0]
    module = importlib.import_module(f"pulumi_kubernetes.{SDK_MODULES.get(group, group)}.v1")
    arguments = {
        re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", key): value
        for key, value in body.items()
        if key not in ("apiVersion", "kind")
    }
    getattr(module, body["kind"])("sdk", **arguments)


@pytest.mark.parametrize("body", BODIES, ids=lambda body: f"{body['kind']}-{'-'.join(body)}")
def test_an_object_is_registered_as_the_sdks_class_would(body: dict[str, Any]) -> None:
    recorder = Recorder()

    async def program() -> None:
        declare("ours", {**body, "metadata": META}, pulumi.ResourceOptions())
        of_the_sdk({**body, "metadata": {**META, "annotations": {FIELD_MANAGER: "inference-platform-lab"}}})
        await wait_for_rpcs()

    in_own_runtime(recorder.mocks, program, monitor=recorder)
    ours, sdk = recorder.requests["ours"], recorder.requests["sdk"]
    for part in ("type", "object", "version", "pluginDownloadURL", "additionalSecretOutputs", "protect"):
        assert getattr(ours, part) == getattr(sdk, part), part
