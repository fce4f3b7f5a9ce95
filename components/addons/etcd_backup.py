"""Snapshots of etcd into the site's bucket, by Sidero's talos-backup and Talos's own access for pods.

Talos v1.13.9 issues a talosconfig with the one role that `cluster.machines.etcd_backup` allows, into the Secret of the
name of its ServiceAccount, and renews it every few hours (internal/app/machined/pkg/controllers/kubeaccess). Variables
and their meaning are those of talos-backup v0.1.0-beta.3 (pkg/config/service.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pulumi

from components.component import Component
from components.namespace import Namespace
from components.pod_security import CONTAINER_SECURITY, pod_security
from components.specs.etcd_backup import EtcdBackupSpec
from floor import namespaces

NAMESPACE = namespaces.ETCD_BACKUP
NAME = "etcd-backup"
ROLE = "os:etcd:backup"
# Off the full hour, when everyone's backups begin.
_MINUTE = 17
_PATIENCE_S = 1800
_USER = 65534
# etcd's data is 2 GiB at most (its own quota), and the encrypted copy lies beside the snapshot.
_ROOM = "6Gi"
_SNAPSHOTS = "/snapshots"
_TALOS, _BUCKET_CA, _SYSTEM_CAS = "/var/run/secrets/talos.dev", "/run/bucket-ca", "/etc/ssl/certs"


def service_account() -> dict[str, Any]:
    """Talos's, not Kubernetes': what the Secret of the same name is made for."""
    return {
        "apiVersion": "talos.dev/v1alpha1",
        "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"roles": [ROLE]},
    }


def cron_job(spec: EtcdBackupSpec, *, site: str, image: str) -> dict[str, Any]:
    """Takes one snapshot every few hours. A run that fails is tried again, and the next one is not kept waiting."""
    labels = {"app.kubernetes.io/name": NAME}
    hours = "*" if spec.every_h == 1 else f"*/{spec.every_h}"
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "schedule": f"{_MINUTE} {'0' if spec.every_h == 24 else hours} * * *",
            "timeZone": "Etc/UTC",
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": _PATIENCE_S,
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 2,
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 3,
                    "activeDeadlineSeconds": _PATIENCE_S,
                    "template": {"metadata": {"labels": labels}, "spec": _pod(spec, site, image)},
                }
            },
        },
    }


def _pod(spec: EtcdBackupSpec, site: str, image: str) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(_USER),
        "containers": [
            {
                "name": NAME,
                "image": image,
                # Snapshots are written where it runs.
                "workingDir": _SNAPSHOTS,
                "env": _environment(spec, site),
                "resources": {
                    "requests": {"cpu": "50m", "memory": "64Mi", "ephemeral-storage": "256Mi"},
                    "limits": {"memory": "512Mi", "ephemeral-storage": _ROOM},
                },
                "securityContext": dict(CONTAINER_SECURITY),
                "volumeMounts": [
                    {"name": "snapshots", "mountPath": _SNAPSHOTS},
                    {"name": "talos", "mountPath": _TALOS, "readOnly": True},
                    {"name": "bucket-ca", "mountPath": _BUCKET_CA, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "snapshots", "emptyDir": {"sizeLimit": _ROOM}},
            {"name": "talos", "secret": {"secretName": NAME, "defaultMode": 0o440}},
            {
                "name": "bucket-ca",
                "secret": {
                    "secretName": spec.keys_secret,
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    "optional": True,
                },
            },
        ],
    }


def _environment(spec: EtcdBackupSpec, site: str) -> list[dict[str, Any]]:
    address = urlsplit(spec.address)
    bucket, _, prefix = address.path.strip("/").partition("/")

    def key(variable: str, name: str) -> dict[str, Any]:
        return {"name": variable, "valueFrom": {"secretKeyRef": {"name": spec.keys_secret, "key": name}}}

    texts = {
        "AGE_X25519_PUBLIC_KEY": spec.age_public_key,
        "AWS_REGION": spec.region,
        "BUCKET": bucket,
        "CLUSTER_NAME": site,
        "CUSTOM_S3_ENDPOINT": f"{address.scheme}://{address.netloc}",
        "S3_PREFIX": prefix or site,
        # Go reads every file of both folders.
        "SSL_CERT_DIR": f"{_SYSTEM_CAS}:{_BUCKET_CA}",
        # The bucket in the path, as most servers want it: in this release it is on where the text is "false".
        "USE_PATH_STYLE": "false",
    }
    return [
        key("AWS_ACCESS_KEY_ID", "access_key_id"),
        key("AWS_SECRET_ACCESS_KEY", "secret_access_key"),
        *({"name": name, "value": value} for name, value in sorted(texts.items())),
    ]


@dataclass(frozen=True, kw_only=True)
class EtcdBackupArgs:
    """The site's settings, its name, and the program's image."""

    spec: EtcdBackupSpec
    site: str
    image: str
    filled: Sequence[Mapping[str, Any]] = ()
    """What fills the bucket's keys out of the site's store."""
    needs: Sequence[pulumi.Resource] = ()


@dataclass(frozen=True, kw_only=True)
class EtcdBackupHandle:
    """Snapshots are due; none may be there yet."""

    ready: list[pulumi.Resource]


class EtcdBackup(Component, token="etcd_backup:EtcdBackup"):
    """A namespace that Talos lets in, and the CronJob."""

    def __init__(self, name: str, args: EtcdBackupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        here = pulumi.ResourceOptions(parent=self)
        space = Namespace(NAMESPACE, pod_security="restricted", opts=here).handle
        account = self.child("account", service_account(), depends_on=[space.ready])
        for body in args.filled:
            self.child(f"filled-{body['metadata']['name']}", body, depends_on=[space.ready, *args.needs])
        job = self.child("job", cron_job(args.spec, site=args.site, image=args.image), depends_on=[account])
        self.handle = EtcdBackupHandle(ready=[space.ready, job])
        self.finish(namespace=NAMESPACE)
