"""The store that Secrets are filled from, and the Secrets. No value of a key passes through the program."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.specs.secrets import KubernetesStoreSpec, RemoteSecret, StoreSpec, VaultStoreSpec
from floor import namespaces
from floor.durations import duration_of

ACCOUNT = "inference-secrets"
"""Account by which the store knows the platform; no pod runs as it."""
STORE = "inference-platform"
"""Name of the store that the program declares."""
_API = "external-secrets.io/v1"
_RBAC = "rbac.authorization.k8s.io"
_READY = {"pulumi.com/waitFor": "condition=Ready"}
# For a store that is not open yet, and for keys that are put into it meanwhile.
PATIENCE_S = 900


def store_name(store: StoreSpec) -> str:
    """The ClusterSecretStore that Secrets are filled from."""
    return store.existing or STORE


def cluster_secret_store(store: StoreSpec, readers: Sequence[str]) -> dict[str, Any] | None:
    """The store of these values; None for one that the site makes. readers: namespaces that may read it."""
    if store.vault is not None:
        provider = {"vault": _vault(store.vault)}
    elif store.kubernetes is not None:
        provider = {"kubernetes": _kubernetes(store.kubernetes)}
    else:
        return None
    return {
        "apiVersion": _API,
        "kind": "ClusterSecretStore",
        "metadata": {"name": STORE, "annotations": _READY},
        "spec": {"conditions": [{"namespaces": sorted(readers)}], "provider": provider},
    }


def _vault(vault: VaultStoreSpec) -> dict[str, Any]:
    account = {
        "name": ACCOUNT,
        "namespace": namespaces.SECRETS,
        **({"audiences": [vault.audience]} if vault.audience else {}),
    }
    login = {"mountPath": vault.auth_path, "role": vault.role, "serviceAccountRef": account}
    return {
        "server": vault.server,
        "path": vault.path,
        "version": vault.engine,
        **({"caBundle": _base64(vault.ca)} if vault.ca else {}),
        "auth": {"kubernetes": login},
    }


def _kubernetes(store: KubernetesStoreSpec) -> dict[str, Any]:
    here = namespaces.SECRETS
    if store.server is None:
        # Every namespace has this one, with the authorities of its own API server.
        own = {"type": "ConfigMap", "name": "kube-root-ca.crt", "namespace": here, "key": "ca.crt"}
        return {
            "server": {"caProvider": own},
            "remoteNamespace": store.namespace,
            "auth": {"serviceAccount": {"name": ACCOUNT, "namespace": here}},
        }
    token = {"name": str(store.token_secret), "namespace": here, "key": "token"}
    return {
        "server": {"url": store.server, "caBundle": _base64(str(store.ca))},
        "remoteNamespace": store.namespace,
        "auth": {"token": {"bearerToken": token}},
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def account(store: StoreSpec) -> list[dict[str, Any]]:
    """The account that logs in, and in this cluster what it may read; none where a token of yours does."""
    if store.vault is None and (store.kubernetes is None or store.kubernetes.server is not None):
        return []
    made: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": namespaces.SECRETS},
            "automountServiceAccountToken": False,
        }
    ]
    if store.kubernetes is None:
        return made
    meta = {"name": ACCOUNT, "namespace": store.kubernetes.namespace}
    return [
        *made,
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": meta,
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespaces.SECRETS}],
        },
    ]


def external_secret(secret: RemoteSecret, store: str, refresh_interval_s: int) -> dict[str, Any]:
    """What fills the Secret. An entry that the store lost leaves the Secret as it is; the Secret goes with this."""
    return {
        "apiVersion": _API,
        "kind": "ExternalSecret",
        "metadata": {"name": secret.name, "namespace": secret.namespace, "annotations": _READY},
        "spec": {
            "refreshInterval": duration_of(refresh_interval_s),
            "secretStoreRef": {"kind": "ClusterSecretStore", "name": store},
            "target": {
                "name": secret.name,
                "creationPolicy": "Owner",
                "deletionPolicy": "Retain",
                "template": {"type": secret.type},
            },
            "data": [
                {"secretKey": key, "remoteRef": {"key": entry, "property": part}}
                for key, (entry, part) in secret.data.items()
            ],
        },
    }


@dataclass(frozen=True, kw_only=True)
class SecretStoreArgs:
    """The store, and what it is read by."""

    store: StoreSpec
    readers: Sequence[str]
    """Namespaces with Secrets that it fills."""
    needs: Sequence[pulumi.Resource]
    """Where the program installs external-secrets."""


@dataclass(frozen=True, kw_only=True)
class SecretStoreHandle:
    """A store that can be read once `ready` is there."""

    name: str
    ready: list[pulumi.Resource]


class SecretStore(Component, token="secret_store:SecretStore"):
    """The store as a ClusterSecretStore, which has logged in when it is ready; nothing for one that the site makes."""

    def __init__(self, name: str, args: SecretStoreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        accounts = [
            self.child(f"account-{body['kind'].lower()}", body, depends_on=args.needs) for body in account(args.store)
        ]
        ready: list[pulumi.Resource] = [*args.needs]
        if body := cluster_secret_store(args.store, args.readers):
            ready.append(
                self.child("store", body, depends_on=[*args.needs, *accounts], patience_s=PATIENCE_S),
            )
        self.handle = SecretStoreHandle(name=store_name(args.store), ready=ready)
        self.finish()


@dataclass(frozen=True, kw_only=True)
class FilledSecretsArgs:
    """What fills Secrets of one namespace."""

    bodies: Sequence[Mapping[str, Any]]
    """Their ExternalSecrets."""
    needs: Sequence[pulumi.Resource]
    """The store and the namespace."""


@dataclass(frozen=True, kw_only=True)
class FilledSecretsHandle:
    """Secrets with all their keys once `ready` is there."""

    ready: list[pulumi.Resource]


class FilledSecrets(Component, token="secret_store:FilledSecrets"):
    """An ExternalSecret for each Secret; ready when the Secret has the store's values."""

    def __init__(self, name: str, args: FilledSecretsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        ready: list[pulumi.Resource] = [
            self.child(body["metadata"]["name"], body, depends_on=args.needs, patience_s=PATIENCE_S)
            for body in args.bodies
        ]
        self.handle = FilledSecretsHandle(ready=ready)
        self.finish()
