"""The directory of keys that people make while the platform runs, in a database of the site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_command import local

from components.component import Component
from components.minted import mint
from components.namespace import NamespaceHandle
from components.network_policies import allow_ingress
from components.objects import KEEP
from components.placing import budget
from components.tenants.callers import CallersHandle
from components.tenants.ledger import LedgerAccess
from components.tenants.pods import ServicePods, opaque_secret, service, two_pods
from floor.stateful import PEPPER, Keeping
from services.directory import variables

DIRECTORY_URL = f"http://{variables.SERVICE}.{{namespace}}.svc:{variables.DEFAULT_PORT}"
_LABELS = {"app.kubernetes.io/name": variables.SERVICE}
SECRETS_FOLDER, _DATABASE, _TENANTS, _LEDGER = "/etc/secrets", "/etc/database", "/etc/tenants", "/etc/ledger"


def shared_secrets(*names: str) -> dict[str, Any]:
    """Volume of a pod with these keys of the Secret."""
    items = [{"key": name, "path": name} for name in names]
    return {"name": "secrets", "secret": {"secretName": variables.TOKENS_SECRET, "items": items, "defaultMode": 0o440}}


@dataclass(frozen=True, kw_only=True)
class Suspending:
    """Where signals of keys come from, and which of these suspend how many."""

    ledger: LedgerAccess
    signals: Sequence[str]
    most_per_hour: int
    never: Sequence[str]
    """Keys, as TENANT.NAME, that none suspends."""

    @property
    def arguments(self) -> list[str]:
        """Options of the directory."""
        return [
            f"--ledger={self.ledger.url}",
            f"--ledger-token-file={_LEDGER}/{self.ledger.key}",
            f"--suspend-on={','.join(self.signals)}",
            f"--most-suspended-per-hour={self.most_per_hour}",
            *([f"--never-suspend={','.join(self.never)}"] if self.never else []),
        ]


def deployment(
    namespace: str, *, image: str, known: CallersHandle, database_secret: str, suspending: Suspending | None = None
) -> dict[str, Any]:
    """The directory reads the same tenants as the gatekeeper. suspending: None where no signal suspends a key."""
    volumes = {
        _TENANTS: {"name": "tenants", "configMap": {"name": known.tenants}},
        _DATABASE: {"name": "database", "secret": {"secretName": database_secret, "defaultMode": 0o440}},
        SECRETS_FOLDER: shared_secrets(variables.PEPPER_KEY, variables.OPERATOR_KEY, variables.READER_KEY),
    }
    arguments = [
        f"--port={variables.DEFAULT_PORT}",
        f"--tenants-file={_TENANTS}/tenants.json",
        f"--database-url-file={_DATABASE}/{variables.DATABASE_KEY}",
        f"--pepper-file={SECRETS_FOLDER}/{variables.PEPPER_KEY}",
        f"--operator-token-file={SECRETS_FOLDER}/{variables.OPERATOR_KEY}",
        f"--reader-token-file={SECRETS_FOLDER}/{variables.READER_KEY}",
    ]
    if suspending:
        arguments += suspending.arguments
        volumes |= {_LEDGER: suspending.ledger.volume}
    pods = ServicePods(
        name=variables.SERVICE,
        image=image,
        arguments=arguments,
        ports={"http": variables.DEFAULT_PORT},
        asked="http",
        ready={"periodSeconds": 5, "timeoutSeconds": 5},
        memory="128Mi",
        volumes=volumes,
        # It is ready while its database is, and `up` of a new tenant needs neither.
        annotations={"pulumi.com/skipAwait": "true"},
        versions={"tenants": known.versions["tenants"]},
    )
    return two_pods(namespace, pods)


@dataclass(frozen=True, kw_only=True)
class DirectoryArgs:
    """Where the keys are kept, and for which tenants there may be any."""

    image: str
    namespace: NamespaceHandle
    known: CallersHandle
    database_secret: str
    pepper: Keeping
    """Whether `up` and `destroy` refuse to delete the pepper."""
    needs: Sequence[pulumi.Resource]
    suspending: Suspending | None = None
    """None where no signal suspends a key."""
    recovered: str | None = None
    """File with the secrets that a lost state had."""


@dataclass(frozen=True, kw_only=True)
class DirectoryHandle:
    """The secrets are there once `shared` is; the directory answers some time later, which nothing has to wait for."""

    shared: list[pulumi.Resource]


class Directory(Component, token="directory:Directory"):
    """Two pods, the secrets that they share with their readers, and who reaches them."""

    def __init__(self, name: str, args: DirectoryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        space = args.namespace.name
        needs = [args.namespace.ready, *args.known.ready, *args.needs]
        values = {
            key: self._mint(key, "disposable", args.recovered) for key in (variables.OPERATOR_KEY, variables.READER_KEY)
        }
        values[variables.PEPPER_KEY] = self._mint(variables.PEPPER_KEY, args.pepper, args.recovered)
        shared = self.child("secrets", opaque_secret(space, variables.TOKENS_SECRET, values), depends_on=needs)
        pods = deployment(
            space,
            image=args.image,
            known=args.known,
            database_secret=args.database_secret,
            suspending=args.suspending,
        )
        # By the API server's proxy, which has no labels to name it by; the operator's token decides.
        entry = [((), [variables.DEFAULT_PORT])]
        # Gatekeepers find it there, and `sitectl key` by the API server.
        self.child("service", service(space, variables.SERVICE, variables.DEFAULT_PORT), depends_on=needs)
        self.child("network-policy", allow_ingress(variables.SERVICE, space, _LABELS, entry), depends_on=needs)
        self.child("budget", budget(variables.SERVICE, space, _LABELS), depends_on=needs)
        self.child("pods", pods, depends_on=[*needs, shared])
        self.handle = DirectoryHandle(shared=[shared])
        self.finish(service=variables.SERVICE)

    def _mint(self, key: str, keeping: Keeping, recovered: str | None) -> pulumi.Output[str]:
        """Random, made once and kept in the encrypted state. Only of the pepper another one would end keys."""
        command = self.stateful(
            key,
            PEPPER,
            lambda logical_name, options: local.Command(
                logical_name,
                create=mint(f"{variables.SERVICE}-{key}", recovered=recovered),
                update=KEEP,
                logging=local.Logging.NONE,
                opts=options,
            ),
            keeping=keeping,
            secret_outputs=["stdout"],
        )
        return pulumi.Output.secret(command.stdout)
