"""What a site may set for Secrets that a store of keys fills, and what follows of it for each Secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from floor.spec import Spec

SecretSystem = Literal["none", "external", "external_secrets"]
# An empty property is all of an entry, as JSON.
Text = Annotated[str, Field(min_length=1)]


class VaultStoreSpec(Spec):
    """Vault with a key-value engine. It knows the platform by a token of the account `inference-secrets`."""

    server: str
    """Https address of the server, as pods reach it."""
    path: Text = "secret"
    """Where the key-value engine is mounted."""
    engine: Literal["v1", "v2"] = "v2"
    """Version of that engine."""
    role: Text
    """Role of Vault's Kubernetes method that the account `inference-secrets` in `external-secrets` is bound to. It
    reads; the platform writes nothing."""
    auth_path: Text = "kubernetes"
    """Where that method is mounted."""
    audience: Text | None = None
    """Audience of the token, which the role names; Vault 1.21 and later asks for one."""
    ca: str | None = None
    """Certificates (PEM) that the server is trusted by, in place of the image's own."""


class KubernetesStoreSpec(Spec):
    """Secrets of a namespace, in this cluster or another one."""

    namespace: str
    """Namespace with the Secrets that are read."""
    server: str | None = None
    """Https address of another cluster's API server; if not set, this cluster's, where the program lets the account
    `inference-secrets` read that namespace's Secrets."""
    ca: str | None = None
    """Certificates (PEM) that the other API server is trusted by; required with `server`."""
    token_secret: str | None = None
    """Secret in `external-secrets` that you make, with a token for the other cluster as `token`; required with
    `server`. `up` waits 15 minutes until it is there."""


class StoreSpec(Spec):
    """Where keys come from: one of these."""

    existing: str | None = None
    """A ClusterSecretStore that you make, for any other store that external-secrets reads."""
    vault: VaultStoreSpec | None = None
    """A ClusterSecretStore for Vault, which the program declares."""
    kubernetes: KubernetesStoreSpec | None = None
    """A ClusterSecretStore for Secrets of another namespace or cluster, which the program declares."""


class RemoteSpec(Spec):
    """Where the keys of one Secret are in the store."""

    key: Text
    """Entry of the store: for Vault its path in the engine, for Kubernetes a Secret's name."""
    properties: dict[str, Text] = Field(default_factory=dict)
    """Property of the entry for a key of the Secret, such as `{tls.crt: certificate}`; the same name for keys that are
    not in it. A key that its reader can do without is read only if it is in it."""


class SecretsSpec(Spec):
    """Where the Secrets come from that other keys of this file name."""

    system: SecretSystem = "none"
    """`external_secrets`: this program installs external-secrets, which fills the Secrets of `remote` out of `store`;
    `external`: the cluster has external-secrets already; `none`: you make every Secret."""
    store: StoreSpec | None = None
    """Where keys come from; required unless `system` is `none`."""
    refresh_interval_s: int = Field(default=3600, ge=10, le=604_800)
    """How often the store is read again. A new value is in the Secret by then."""
    remote: dict[str, RemoteSpec] = Field(default_factory=dict)
    """Secrets by the name that another key of this file has, such as `gateway.certificate_secret`. Those that are not
    in it are yours to make. A Secret goes with its entry here."""


@dataclass(frozen=True, kw_only=True)
class RemoteSecret:
    """A Secret, and where each of its keys is in the store."""

    namespace: str
    name: str
    type: str
    """As the Secret's readers ask for it, such as `kubernetes.io/tls`."""
    data: Mapping[str, tuple[str, str]]
    """Key of the Secret -> entry of the store, and property of the entry."""
