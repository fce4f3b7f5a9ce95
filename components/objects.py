"""The one door from a builder's dict to a Pulumi resource. Builders never import pulumi."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pulumi
from pulumi_kubernetes import apps, core, networking, policy, rbac, storage

# Core kinds go through their typed classes; every other kind is a custom resource.
_TYPED: Mapping[tuple[str, str], type[pulumi.CustomResource]] = {
    ("v1", "ConfigMap"): core.v1.ConfigMap,
    ("v1", "Namespace"): core.v1.Namespace,
    ("v1", "PersistentVolumeClaim"): core.v1.PersistentVolumeClaim,
    ("v1", "Secret"): core.v1.Secret,
    ("v1", "Service"): core.v1.Service,
    ("v1", "ServiceAccount"): core.v1.ServiceAccount,
    ("apps/v1", "Deployment"): apps.v1.Deployment,
    ("networking.k8s.io/v1", "NetworkPolicy"): networking.v1.NetworkPolicy,
    ("policy/v1", "PodDisruptionBudget"): policy.v1.PodDisruptionBudget,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): rbac.v1.ClusterRole,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): rbac.v1.ClusterRoleBinding,
    ("rbac.authorization.k8s.io/v1", "Role"): rbac.v1.Role,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): rbac.v1.RoleBinding,
    ("storage.k8s.io/v1", "StorageClass"): storage.v1.StorageClass,
}

_FIELD_MANAGER = "pulumi.com/patchFieldManager"

KubeObject = pulumi.CustomResource
# The typed classes ask for the plugin of their SDK's version; ours must ask for the same one.
_PLUGIN_VERSION = version("pulumi-kubernetes")


class CustomObject(pulumi.CustomResource):
    """A custom resource whose `status` can be read.

    The SDK's own `apiextensions.CustomResource` has the same type token and inputs, but no status output: the address
    of a Gateway could not be exported with it.
    """

    status: pulumi.Output[Any]

    def __init__(self, name: str, body: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        versioned = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=_PLUGIN_VERSION))
        super().__init__(f"kubernetes:{body['apiVersion']}:{body['kind']}", name, {**body, "status": None}, versioned)


def declare(name: str, body: Mapping[str, Any], opts: pulumi.ResourceOptions) -> KubeObject:
    """Declare the object that `body` (wire format, camelCase) describes."""
    body = owned(body, f"{pulumi.get_project()}-{pulumi.get_stack()}")
    typed = _TYPED.get((body["apiVersion"], body["kind"]))
    if typed is None:
        return CustomObject(name, body, opts)
    arguments = {_snake(key): value for key, value in body.items() if key not in ("apiVersion", "kind")}
    return typed(name, opts=opts, **arguments)


def owned(body: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """The object with the field manager that applies it: the stack's own one, not a new one for each attempt.

    An `up` that was killed has written objects that its state does not know. The next one applies them as the same
    manager; another manager's share of their fields would stay behind when a field is dropped later.
    """
    meta = body["metadata"]
    annotations = {**meta.get("annotations", {}), _FIELD_MANAGER: manager}
    return {**body, "metadata": {**meta, "annotations": annotations}}


def _snake(key: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", lambda found: "_" + found[1].lower(), key)
