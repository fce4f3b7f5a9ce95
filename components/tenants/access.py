"""Who may call which model: a key per tenant and purpose, checked once at the gateway before anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.minted import mint, minted
from components.namespace import NamespaceHandle
from components.specs.access import KeySpec, TenantSpec, secret_name
from floor.headers import CLIENT_HEADER, MODEL_HEADER
from floor.metadata import PROTECTED

_KEY_PREFIX = "sk-"


def client_id(tenant: str, key: str) -> str:
    """Name of a key in counts, logs and policies: `tenant.purpose`."""
    return f"{tenant}.{key}"


def keys_secret(tenant: str, spec: TenantSpec, namespace: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Secret in the form that the gateway reads: client id -> bare key.

    Envoy Gateway accepts every key that is in it, and server-side apply leaves what others add. So the API server
    refuses every change: other keys are another Secret, and the old one goes when the policy names the new one.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(tenant, spec), "namespace": namespace},
        "type": "Opaque",
        "immutable": True,
        "stringData": {client_id(tenant, key): value for key, value in keys.items()},
    }


def security_policy(
    namespace: str, gateway: Mapping[str, str], tenants: Mapping[str, TenantSpec], models: Sequence[str]
) -> dict[str, Any]:
    """The gateway's only policy of its kind.

    Keys are checked here and on no route: authentication runs before the model is known, so a route's own policy
    would not be reached by the requests that it should stop. What a tenant may call is checked after the model is
    known. A request for a model that the site does not serve passes, and gets 404 later, unless its route leads to a
    cluster, as a manual one could; without a model that the AI gateway has read, a request is refused.
    """
    allowed = [
        {
            "name": tenant,
            "action": "Allow",
            "principal": {
                "headers": [
                    {"name": CLIENT_HEADER, "values": [client_id(tenant, key) for key in sorted(spec.keys)]},
                    {"name": MODEL_HEADER, "values": sorted(spec.models)},
                ]
            },
        }
        for tenant, spec in sorted(tenants.items())
        if spec.models and spec.keys
    ]
    served = ", ".join(f"'{model}'" for model in sorted(models))
    unknown = {
        "name": "unknown-model",
        "action": "Allow",
        "cel": f"'{MODEL_HEADER}' in request.headers && !(request.headers['{MODEL_HEADER}'] in [{served}]) "
        "&& !has(xds.cluster_name)",
    }
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "SecurityPolicy",
        "metadata": {"name": "tenants", "namespace": namespace, "labels": PROTECTED},
        "spec": {
            "targetRefs": [dict(gateway)],
            "apiKeyAuth": {
                "credentialRefs": [
                    {"group": "", "kind": "Secret", "name": secret_name(tenant, spec)}
                    for tenant, spec in sorted(tenants.items())
                    if spec.keys
                ],
                # OpenAI's clients send the first header, Anthropic's the second.
                "extractFrom": [{"headers": ["Authorization", "x-api-key"]}],
                "forwardClientIDHeader": CLIENT_HEADER,
                "sanitize": True,
            },
            "authorization": {"defaultAction": "Deny", "rules": [*allowed, unknown]},
        },
    }


def decided_policy(namespace: str, gateway: Mapping[str, str]) -> dict[str, Any]:
    """The gateway's only policy of its kind where a gatekeeper decides: nothing passes that it has not named.

    The front door takes the header away from clients, so without the filter that asks the gatekeeper all are refused.
    """
    named = {"name": "decided", "action": "Allow", "cel": f"'{CLIENT_HEADER}' in request.headers"}
    return {
        "apiVersion": "gateway.envoyproxy.io/v1alpha1",
        "kind": "SecurityPolicy",
        "metadata": {"name": "tenants", "namespace": namespace, "labels": PROTECTED},
        "spec": {
            "targetRefs": [dict(gateway)],
            "authorization": {"defaultAction": "Deny", "rules": [named]},
        },
    }


@dataclass(frozen=True, kw_only=True)
class AccessArgs:
    """Tenants by name, and the gateway that they come through."""

    tenants: Mapping[str, TenantSpec]
    models: Sequence[str]
    namespace: NamespaceHandle
    target: dict[str, str]
    needs: list[pulumi.Resource]
    in_secrets: bool
    """Whether Envoy Gateway compares keys, or did so a moment ago."""
    recovered: str | None = None
    """File with the keys that a lost state had."""


@dataclass(frozen=True, kw_only=True)
class AccessHandle:
    """Authentication in force; open routes only after `ready`."""

    keys: dict[str, pulumi.Output[str]]
    """Client id -> key, secret."""
    ready: list[pulumi.Resource]


class Access(Component, token="access:Access"):
    """Keys, the policy that lets only known callers in, and where the gateway checks keys the Secrets that it reads."""

    def __init__(self, name: str, args: AccessArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self._args = args
        space = args.namespace
        keys: dict[str, pulumi.Output[str]] = {}
        secrets: list[pulumi.Resource] = []
        for tenant, spec in sorted(args.tenants.items()):
            minted = {
                key: self._mint(tenant, key, key_spec, args.recovered)
                for key, key_spec in sorted(spec.keys.items())
                if key_spec.sha256 is None
            }
            keys |= {client_id(tenant, key): value for key, value in minted.items()}
            if args.in_secrets and spec.keys:
                body = keys_secret(tenant, spec, space.name, minted)
                secrets.append(self.child(f"{tenant}-keys", body, depends_on=[space.ready]))
        ready: list[pulumi.Resource] = []
        if args.in_secrets:
            policy = security_policy(space.name, args.target, args.tenants, args.models)
            ready = [self.child("policy", policy, depends_on=[*secrets, *args.needs])]
        self.handle = AccessHandle(keys=keys, ready=ready)
        self.finish(clients=sorted(keys))

    def require_decision(self, needs: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """The policy where a gatekeeper alone decides; nothing while keys are in Secrets.

        needs: the filter that asks it, which is there before Envoy Gateway's key check goes.
        """
        if self._args.in_secrets:
            return []
        policy = decided_policy(self._args.namespace.name, self._args.target)
        return [self.child("policy", policy, depends_on=[*self._args.needs, *needs])]

    def _mint(self, tenant: str, key: str, spec: KeySpec, recovered: str | None) -> pulumi.Output[str]:
        """A random key of 256 bits, made once and kept in the encrypted state; a new wording never changes it."""
        create = mint(client_id(tenant, key), prefix=_KEY_PREFIX, rotation=spec.rotation, recovered=recovered)
        return minted(self, f"{tenant}-{key}", create, rotation=spec.rotation)
