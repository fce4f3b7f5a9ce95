"""PostgreSQL of the platform's own, by CloudNativePG: servers, databases, who owns and reaches them, and backups.

Fields are those of postgresql.cnpg.io/v1 at CloudNativePG v1.30.0 (config/crd/bases) and barmancloud.cnpg.io/v1 at
its Barman Cloud plugin v0.13.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import pulumi

from components.addons.cloudnative_pg import OPERATOR_PODS, SERVER_METRICS_PORT, SERVER_PODS
from components.component import Component
from components.minted import mint, minted
from components.namespace import Namespace, NamespaceHandle
from components.network_policies import Peer, allow_ingress, peer, read_by
from components.objects import declare
from components.placing import Placing
from components.specs.database import ARCHIVE_MINUTES, DatabaseBackupsSpec, DatabaseSpec, own_secret
from components.tenants.pods import opaque_secret
from floor import namespaces
from floor.stateful import DATABASE

NAMESPACE = namespaces.DATABASE
PLUGIN = "barman-cloud.cloudnative-pg.io"
_BUCKET, _ORIGIN = "backups", "origin"
_SQL_PORT, _STATUS_PORT = 5432, 8000
_API = "postgresql.cnpg.io/v1"
# Off the full hour, when everyone's backups begin.
_MINUTE = 47
# A first start pulls an image and makes three volumes, one server after the other; a restore reads the bucket.
_PATIENCE_S = 3600
_READY = {"pulumi.com/waitFor": "condition=Ready"}


def server_name(generation: int) -> str:
    """Name of the servers of a generation, and of its folder in the bucket."""
    return f"platform-{generation}"


def cluster(
    spec: DatabaseSpec, *, image: str, storage_class: str, placing: Placing, databases: Sequence[str]
) -> dict[str, Any]:
    """The servers. A row is confirmed once a second node has it, and no node has two of them."""
    return {
        "apiVersion": _API,
        "kind": "Cluster",
        "metadata": {"name": server_name(spec.generation), "namespace": NAMESPACE, "annotations": dict(_READY)},
        "spec": {
            "instances": spec.instances,
            "imageName": image,
            "storage": {"size": f"{spec.size_gib}Gi", "storageClass": storage_class},
            "affinity": {
                "enablePodAntiAffinity": True,
                "podAntiAffinityType": "required",
                "topologyKey": "kubernetes.io/hostname",
                **({"nodeSelector": dict(placing.node_selector)} if placing.node_selector else {}),
                **({"tolerations": list(placing.tolerations)} if placing.tolerations else {}),
            },
            # `required`: where no standby answers, writes wait instead of being on one node alone.
            "postgresql": {
                "synchronous": {"method": "any", "number": 1, "dataDurability": "required"},
                "parameters": {"archive_timeout": f"{ARCHIVE_MINUTES}min"},
            },
            # No figure of a run.
            "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            "managed": {"roles": [_role(name) for name in databases]},
            "bootstrap": _bootstrap(spec),
            **_backed_up(spec),
        },
    }


def _role(database: str) -> dict[str, Any]:
    return {"name": database, "login": True, "passwordSecret": {"name": role_secret(database)}}


def role_secret(database: str) -> str:
    """Secret beside the servers with the password of a database's owner."""
    return f"{database}-role"


def _bootstrap(spec: DatabaseSpec) -> dict[str, Any]:
    if spec.recovery is None:
        return {"initdb": {"dataChecksums": True}}
    target = {"recoveryTarget": {"targetTime": spec.recovery.until}} if spec.recovery.until else {}
    return {"recovery": {"source": _ORIGIN, **target}}


def _backed_up(spec: DatabaseSpec) -> dict[str, Any]:
    """Where the log goes, and where a restored generation comes from: never to one folder."""
    if spec.backups is None:
        return {}
    parameters = {"barmanObjectName": _BUCKET}
    plugins: dict[str, Any] = {"plugins": [{"name": PLUGIN, "isWALArchiver": True, "parameters": parameters}]}
    if spec.recovery is not None:
        source = {**parameters, "serverName": server_name(spec.recovery.generation)}
        plugins["externalClusters"] = [{"name": _ORIGIN, "plugin": {"name": PLUGIN, "parameters": source}}]
    return plugins


def database(generation: int, name: str) -> dict[str, Any]:
    """A database whose owner has its name. It outlives its object, whose Cluster can never be another one."""
    return {
        "apiVersion": _API,
        "kind": "Database",
        "metadata": {"name": f"{name}-{generation}", "namespace": NAMESPACE},
        "spec": {
            "name": name,
            "owner": name,
            "cluster": {"name": server_name(generation)},
            "databaseReclaimPolicy": "retain",
        },
    }


def object_store(spec: DatabaseBackupsSpec) -> dict[str, Any]:
    """The bucket, and for how long it keeps."""
    address = urlsplit(spec.address)

    def key(name: str) -> dict[str, str]:
        return {"name": spec.keys_secret, "key": name}

    return {
        "apiVersion": "barmancloud.cnpg.io/v1",
        "kind": "ObjectStore",
        "metadata": {"name": _BUCKET, "namespace": NAMESPACE},
        "spec": {
            "retentionPolicy": f"{spec.keep_days}d",
            "configuration": {
                "destinationPath": f"s3://{address.path.strip('/')}/",
                "endpointURL": f"{address.scheme}://{address.netloc}",
                **({"endpointCA": key("ca.crt")} if spec.has_ca else {}),
                "s3Credentials": {
                    "accessKeyId": key("access_key_id"),
                    "secretAccessKey": key("secret_access_key"),
                },
                "wal": {"compression": "gzip"},
                "data": {"compression": "gzip"},
            },
            "instanceSidecarConfiguration": {
                "env": [{"name": "AWS_DEFAULT_REGION", "value": spec.region}],
                "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            },
        },
    }


def scheduled_backup(spec: DatabaseBackupsSpec, generation: int) -> dict[str, Any]:
    """Base backups, the first at once: without one, nothing of the log can be restored."""
    hours = "0" if spec.every_h == 24 else "*" if spec.every_h == 1 else f"*/{spec.every_h}"
    return {
        "apiVersion": _API,
        "kind": "ScheduledBackup",
        "metadata": {"name": server_name(generation), "namespace": NAMESPACE},
        "spec": {
            # Its first field is of seconds.
            "schedule": f"0 {_MINUTE} {hours} * * *",
            "immediate": True,
            "backupOwnerReference": "self",
            "cluster": {"name": server_name(generation)},
            "method": "plugin",
            "pluginConfiguration": {"name": PLUGIN},
        },
    }


def network_policy(generation: int, clients: Sequence[Peer], scrapers: Sequence[Peer]) -> dict[str, Any]:
    """Who keeps rows here, the servers among themselves, their operator, and what measures.

    Pods of Jobs that fill a new standby have the label of their Cluster alone (pkg/specs/jobs.go).
    """
    own = peer({"cnpg.io/cluster": server_name(generation)})
    operator = peer(OPERATOR_PODS, namespaces.DATABASE_OPERATOR)
    among = [([own, operator], [_SQL_PORT, _STATUS_PORT]), (clients, [_SQL_PORT])]
    return allow_ingress("postgresql", NAMESPACE, SERVER_PODS, [*among, *read_by(scrapers, SERVER_METRICS_PORT)])


def password_secret(name: str, password: pulumi.Input[str]) -> dict[str, Any]:
    """What the operator sets a role's password by, also when it changes."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": role_secret(name), "namespace": NAMESPACE, "labels": {"cnpg.io/reload": "true"}},
        "type": "kubernetes.io/basic-auth",
        "stringData": {"username": name, "password": password},
    }


def address_of(name: str, password: str, *, generation: int) -> str:
    """By TLS. The certificate is of the operator's own CA, which no client has, so that none verifies it."""
    host = f"{server_name(generation)}-rw.{NAMESPACE}.svc"
    return f"postgresql://{name}:{quote(password, safe='')}@{host}:{_SQL_PORT}/{name}?sslmode=require"


@dataclass(frozen=True, kw_only=True)
class DatabaseArgs:
    """The site's settings, and who keeps what in it."""

    spec: DatabaseSpec
    image: str
    storage_class: str
    placing: Placing
    """Nodes that can mount a volume of the class."""
    databases: Sequence[str]
    front: NamespaceHandle
    """Of the gateway, where the programs are that read the addresses."""
    scrapers: Sequence[Peer]
    filled: Sequence[Mapping[str, Any]]
    """What fills the bucket's keys out of the site's store."""
    needs: Sequence[pulumi.Resource]


@dataclass(frozen=True, kw_only=True)
class DatabaseHandle:
    """The Secrets with the addresses of databases, which no request of a model needs: what reads rows waits for its
    database by itself, and nothing else waits until the servers answer."""

    ready: list[pulumi.Resource]


class PostgreSql(Component, token="database:PostgreSql"):
    """A namespace with the servers, a database for each program, and backups."""

    def __init__(self, name: str, args: DatabaseArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec, names = args.spec, args.databases
        space = Namespace(NAMESPACE, pod_security="restricted", opts=pulumi.ResourceOptions(parent=self)).handle
        needs = [space.ready, *args.needs]
        clients = [peer({"app.kubernetes.io/name": known}, args.front.name) for known in names]
        before = [
            self.child("network-policy", network_policy(spec.generation, clients, args.scrapers), depends_on=needs)
        ]
        before += [self.child(f"filled-{body['metadata']['name']}", body, depends_on=needs) for body in args.filled]
        ready: list[pulumi.Resource] = []
        for known in names:
            password = minted(self, f"{known}-password", mint(f"{name}-{known}"))
            before.append(self.child(f"{known}-role", password_secret(known, password), depends_on=needs))
            address = password.apply(partial(address_of, known, generation=spec.generation))
            shown = opaque_secret(args.front.name, own_secret(known), {"url": pulumi.Output.secret(address)})
            ready.append(self.child(f"{known}-address", shown, depends_on=[args.front.ready]))
        if spec.backups is not None:
            before.append(self.child("bucket", object_store(spec.backups), depends_on=needs))
        body = cluster(spec, image=args.image, storage_class=args.storage_class, placing=args.placing, databases=names)
        timeouts = pulumi.CustomTimeouts(create=f"{_PATIENCE_S}s", update=f"{_PATIENCE_S}s")
        servers = self.stateful(
            f"servers-{spec.generation}",
            DATABASE,
            lambda logical_name, options: declare(
                logical_name,
                body,
                pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(custom_timeouts=timeouts)),
            ),
            keeping=spec.volumes,
            depends_on=[*needs, *before],
        )
        for known in names:
            self.child(f"{known}-{spec.generation}", database(spec.generation, known), depends_on=[servers])
        if spec.backups is not None:
            self.child("schedule", scheduled_backup(spec.backups, spec.generation), depends_on=[servers])
        self.handle = DatabaseHandle(ready=ready)
        self.finish(namespace=NAMESPACE)
