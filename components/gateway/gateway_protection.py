"""Keeps the front door's policies, and the routes behind it, from manual changes that open what they close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from floor.metadata import PROTECTED

NAME = "inference-front-door"
ROUTES_NAME = "inference-routes"
OVERRIDE = "inference-platform/override"
_API = "admissionregistration.k8s.io/v1"
_ENVOY = "gateway.envoyproxy.io"
_GATEWAY = "gateway.networking.k8s.io"
# The program makes all of these before the admission policy, which refuses everything for some seconds where the API
# server has just learned of Gateways. A model's BackendTrafficPolicy is made later, and opens nothing.
_KINDS = ("clienttrafficpolicies", "envoyextensionpolicies", "envoypatchpolicies", "securitypolicies")
# A grant lets a policy of another namespace take the place of ours on a route.
_ROUTES = {
    _GATEWAY: ("gateways", "grpcroutes", "httproutes", "referencegrants"),
    "aigateway.envoyproxy.io": ("aigatewayroutes", "mcproutes"),
}
_UNCHANGED = (
    "request.operation == 'UPDATE' && object.spec == oldObject.spec && "
    "object.metadata.?labels == oldObject.metadata.?labels"
)


def admission_policy(namespaces: Sequence[str], manager: str) -> dict[str, Any]:
    """ValidatingAdmissionPolicy over policies of the front door: labelled ones stay, and none is added or changed.

    manager: the field manager that the program applies with. A deletion names none, so while the gateway is there the
    program deletes nothing that is labelled.
    """
    (label, value), *_ = PROTECTED.items()
    labelled = f"oldObject.metadata.?labels[?'{label}'].orValue('') == '{value}'"
    harmless = f"request.operation == 'DELETE' ? !({labelled}) : {_UNCHANGED}"
    policy = _policy(NAME, namespaces, manager, {_ENVOY: _KINDS}, ["CREATE", "UPDATE", "DELETE"], harmless)
    policy["spec"]["paramKind"] = {"apiVersion": f"{_GATEWAY}/v1", "kind": "Gateway"}
    return policy


def routes_policy(namespaces: Sequence[str], manager: str) -> dict[str, Any]:
    """The same for the listener, what hangs on it, and who may attach from other namespaces: none is added or changed.

    A deletion opens nothing. The AI gateway makes an HTTPRoute out of each of its routes, with a service account.
    """
    generated = (
        "object.metadata.?ownerReferences.orValue([]).exists(owner, owner.kind == 'AIGatewayRoute') && "
        "request.userInfo.username.startsWith('system:serviceaccount:')"
    )
    return _policy(ROUTES_NAME, namespaces, manager, _ROUTES, ["CREATE", "UPDATE"], f"({_UNCHANGED}) || ({generated})")


def _policy(
    name: str,
    namespaces: Sequence[str],
    manager: str,
    kinds: Mapping[str, Sequence[str]],
    operations: Sequence[str],
    harmless: str,
) -> dict[str, Any]:
    """kinds: API group -> resources. harmless: what any user may do, in CEL."""
    touched = "request.operation == 'DELETE' ? oldObject : object"
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
                    ]
                },
                "resourceRules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": ["*"],
                        "operations": list(operations),
                        "resources": list(resources),
                    }
                    for group, resources in kinds.items()
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
                {"name": "harmless", "expression": harmless},
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


def routes_binding() -> dict[str, Any]:
    """In force with or without the Gateway: the program makes its routes later than this."""
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": ROUTES_NAME},
        "spec": {"policyName": ROUTES_NAME, "validationActions": ["Deny"]},
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


class GatewayProtection(Component, token="gateway_protection:GatewayProtection"):
    """Two admission policies and their bindings."""

    def __init__(self, name: str, args: GatewayProtectionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spaces = [args.gateway_namespace, args.models_namespace]
        policy = self.child("policy", admission_policy(spaces, args.manager), depends_on=args.needs)
        binding = admission_binding(args.gateway, args.gateway_namespace)
        self.child("binding", binding, depends_on=[*args.needs, policy])
        routes = self.child("routes-policy", routes_policy(spaces, args.manager), depends_on=args.needs)
        self.child("routes-binding", routes_binding(), depends_on=[*args.needs, routes])
        self.finish(name=NAME)
