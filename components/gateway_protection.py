"""Keeps the policies of the front door from being deleted or weakened manually while the gateway serves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.metadata import PROTECTED

NAME = "inference-front-door"
OVERRIDE = "inference-platform/override"
_API = "admissionregistration.k8s.io/v1"
_ENVOY = "gateway.envoyproxy.io"
# The program makes all of these before the admission policy, which refuses everything for some seconds where the API
# server has just learned of Gateways. A model's BackendTrafficPolicy is made later, and opens nothing.
_KINDS = ("clienttrafficpolicies", "envoyextensionpolicies", "envoypatchpolicies", "securitypolicies")


def admission_policy(namespaces: Sequence[str], manager: str) -> dict[str, Any]:
    """ValidatingAdmissionPolicy over policies of the front door: labelled ones stay, and none is added or changed.

    manager: the field manager that the program applies with. A deletion names none, so while the gateway is there the
    program deletes nothing that is labelled.
    """
    (label, value), *_ = PROTECTED.items()
    labelled = f"oldObject.metadata.?labels[?'{label}'].orValue('') == '{value}'"
    unchanged = "object.spec == oldObject.spec && object.metadata.?labels == oldObject.metadata.?labels"
    touched = "request.operation == 'DELETE' ? oldObject : object"
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway"},
            "matchConstraints": {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
                    ]
                },
                "resourceRules": [
                    {
                        "apiGroups": [_ENVOY],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                        "resources": list(_KINDS),
                    }
                ],
            },
            "variables": [
                {"name": "touched", "expression": touched},
                {
                    "name": "overridden",
                    "expression": f"variables.touched.metadata.?annotations[?'{OVERRIDE}'].orValue('') != ''",
                },
                {
                    "name": "platform",
                    "expression": "request.operation != 'DELETE' && has(request.options.fieldManager) && "
                    f"request.options.fieldManager == '{manager}'",
                },
                {
                    "name": "harmless",
                    "expression": f"request.operation == 'DELETE' ? !({labelled}) : "
                    f"request.operation == 'UPDATE' && {unchanged}",
                },
            ],
            "validations": [
                {
                    "expression": "variables.harmless || variables.platform || variables.overridden",
                    "messageExpression": "request.resource.resource + ' ' + variables.touched.metadata.name + "
                    "' belongs to the front door. Change the file of the site and run pulumi up; or annotate it "
                    f"first with {OVERRIDE}=REASON, and remove the annotation afterwards'",
                    "reason": "Forbidden",
                }
            ],
        },
    }


def admission_binding(gateway: str, gateway_namespace: str) -> dict[str, Any]:
    """The policy is in force while this Gateway exists, so that a site can be destroyed in any order."""
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {
            "policyName": NAME,
            "validationActions": ["Deny"],
            "paramRef": {"name": gateway, "namespace": gateway_namespace, "parameterNotFoundAction": "Allow"},
        },
    }


@dataclass(frozen=True, kw_only=True)
class GatewayProtectionArgs:
    """Where the policies are, and the open door."""

    gateway: str
    gateway_namespace: str
    models_namespace: str
    manager: str
    needs: Sequence[pulumi.Resource]
    """Gateway and policies: created before, deleted after."""


class GatewayProtection(Component):
    """An admission policy and its binding."""

    def __init__(self, name: str, args: GatewayProtectionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spaces = [args.gateway_namespace, args.models_namespace]
        policy = self.child("policy", admission_policy(spaces, args.manager), depends_on=args.needs)
        binding = admission_binding(args.gateway, args.gateway_namespace)
        self.child("binding", binding, depends_on=[*args.needs, policy])
        self.finish(name=NAME)
