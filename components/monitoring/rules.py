"""Recording rules and alerts of a site, as one PrometheusRule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.monitoring import reconciliation, recording
from components.monitoring.alerts import (
    autoscaling,
    callers,
    canaries,
    certificates,
    credentials,
    database,
    dns,
    etcd,
    gateway,
    hardware,
    hosts,
    keys,
    logs,
    measuring,
    models,
    overflows,
    pod_network,
    portal,
    secrets,
    storage,
    usage,
    watcher,
)
from components.monitoring.alerts.alert import Alert
from components.specs.database import DatabaseBackupsSpec, DatabaseSpec
from components.specs.promises import SitePromise

NAME = "inference-platform"
SCALING, STARTING = "scaling", "starting"
CREDENTIALS_NAME = f"{NAME}-credentials"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Which parts a site has that alerts are about."""

    parts: Collection[str]
    """Jobs of what is measured; `credentials`, for those of a cluster that this program made; `prices`, of tokens;
    `budgets`, of tenants; `key-signals` and `suspensions`, of their keys; `canaries` and `overflows`, of models;
    `scaling`, of models that follow the load; `starting`, of those that may have no replica; `hosts`, `control-plane`,
    `etcd-members` and `pod-network`, of the cluster itself."""
    servers: bool
    """Prometheus and Alertmanager of this program."""
    etcd_backup_every_h: int | None = None
    """Hours between two snapshots of etcd; None where this program takes none."""
    database: DatabaseSpec | None = None
    """PostgreSQL of the platform's own; None where the site has another."""


# Alerts about parts that not every site has. The name is that of the group, and the job of what an addon lets measure.
_OF_PARTS: Mapping[str, Callable[[], list[Alert]]] = {
    "gpus": hardware.gpus,
    "storage": storage.volumes,
    "certificates": certificates.certificates,
    "credentials": credentials.credentials,
    "secrets": secrets.secrets,
    "autoscaling": autoscaling.autoscaling,
    SCALING: autoscaling.scaled_models,
    STARTING: autoscaling.starting_models,
    "gatekeeper": callers.gatekeepers,
    "directory": callers.directory,
    "portal": portal.pages,
    "budgets": callers.budgets,
    "ledger": usage.ledgers,
    "usage-shipper": usage.shippers,
    "prices": usage.prices,
    "key-signals": keys.signals,
    "suspensions": keys.suspensions,
    "canaries": canaries.canaries,
    "overflows": overflows.overflows,
    "watcher": watcher.watched,
    "dns-records": dns.records,
    "log-collectors": logs.collectors,
    "log-store": logs.store,
    "hosts": hosts.hosts,
    "control-plane": hosts.control_plane,
    "etcd-members": etcd.members,
    "pod-network": pod_network.pod_network,
}
_DATABASE = DatabaseSpec(
    run_by="cloudnative_pg",
    backups=DatabaseBackupsSpec(address="https://s3.site.example/database", keys_secret="bucket"),  # noqa: S106 - a name
)
ALL = Measured(parts={*_OF_PARTS, gateway.PORTAL_PROXIES}, servers=True, etcd_backup_every_h=6, database=_DATABASE)


def alerts(promise: SitePromise, measured: Measured = ALL) -> Mapping[str, Sequence[Alert]]:
    """Every alert of a site, by the group that they are computed in."""
    groups = {
        "error-budget": gateway.error_budget(),
        "proxies": gateway.proxies(portal=gateway.PORTAL_PROXIES in measured.parts),
        "latency": models.latency(),
        "load": models.load(),
        "replicas": models.replicas(promise),
        "nodes": hardware.nodes(promise.slices),
        **{part: of_part() for part, of_part in _OF_PARTS.items() if part in measured.parts},
        "etcd": etcd.etcd(measured.etcd_backup_every_h) if measured.etcd_backup_every_h else [],
        "database": database.servers(measured.database) if measured.database else [],
        "measuring": [
            *measuring.targets(promise.jobs, models.start_minutes(promise)),
            *(measuring.servers() if measured.servers else []),
        ],
    }
    return {name: listed for name, listed in groups.items() if listed}


def groups(promise: SitePromise, measured: Measured = ALL) -> list[dict[str, Any]]:
    """All rules, as a rule file has them. What alerts compare with comes before them."""
    return [
        {"name": "declared", "rules": recording.declared(promise)},
        {"name": "measured", "rules": recording.measured(promise)},
        *([{"name": "reconciliation", "rules": reconciliation.rules()}] if "ledger" in measured.parts else []),
        *(
            {"name": name, "rules": [alert.rule() for alert in listed]}
            for name, listed in alerts(promise, measured).items()
        ),
    ]


def prometheus_rule(
    namespace: str, labels: Mapping[str, str], promise: SitePromise, measured: Measured = ALL
) -> dict[str, Any]:
    """The object with all of them. labels: by which Prometheus's operator selects rules."""
    return rule_object(NAME, namespace, labels, groups(promise, measured))


def rule_object(
    name: str, namespace: str, labels: Mapping[str, str], listed: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Groups of rules as the object that Prometheus's operator reads."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {"groups": list(listed)},
    }
