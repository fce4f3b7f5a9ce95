"""The one door from a builder's dict to a Pulumi resource. Builders never import pulumi."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import pulumi

from components.metadata import FIELD_MANAGER

# Core kinds go through their typed classes; every other kind is a custom resource. The SDK's modules are imported when
# an object is declared: they are large, and a site is read without them.
_TYPED: Mapping[str, tuple[str, ...]] = {
    "admissionregistration.v1": ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    "core.v1": ("ConfigMap", "Namespace", "PersistentVolumeClaim", "Secret", "Service", "ServiceAccount"),
    "apps.v1": ("Deployment",),
    "networking.v1": ("NetworkPolicy",),
    "policy.v1": ("PodDisruptionBudget",),
    "rbac.v1": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "storage.v1": ("StorageClass",),
}
_MODULES = {
    "admissionregistration.k8s.io/v1": "admissionregistration.v1",
    "v1": "core.v1",
    "apps/v1": "apps.v1",
    "networking.k8s.io/v1": "networking.v1",
    "policy/v1": "policy.v1",
    "rbac.authorization.k8s.io/v1": "rbac.v1",
    "storage.k8s.io/v1": "storage.v1",
}

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
    body = owned(body, field_manager())
    module = _MODULES.get(body["apiVersion"], "")
    if body["kind"] not in _TYPED.get(module, ()):
        return CustomObject(name, body, opts)
    arguments = {_snake(key): value for key, value in body.items() if key not in ("apiVersion", "kind")}
    typed = getattr(importlib.import_module(f"pulumi_kubernetes.{module}"), body["kind"])
    declared: KubeObject = typed(name, opts=opts, **arguments)
    return declared


def field_manager() -> str:
    """The manager of the fields that this stack applies."""
    return f"{pulumi.get_project()}-{pulumi.get_stack()}"


def owned(body: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """The object with the field manager that applies it: the stack's own one, not a new one for each attempt.

    An `up` that was killed has written objects that its state does not know. The next one applies them as the same
    manager; another manager's share of their fields would stay behind when a field is dropped later.
    """
    meta = body["metadata"]
    annotations = {**meta.get("annotations", {}), FIELD_MANAGER: manager}
    return {**body, "metadata": {**meta, "annotations": annotations}}


def _snake(key: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", lambda found: "_" + found[1].lower(), key)
