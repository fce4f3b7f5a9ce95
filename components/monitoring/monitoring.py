"""What measures the platform: monitors, rules and dashboards, and the programs that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.component import Component
from components.monitoring import alertmanager, host_scrapes, kube_state_metrics, operator, prometheus, recording
from components.monitoring.dashboard_config_maps import dashboard_config_maps
from components.monitoring.pods import NAME_LABEL
from components.monitoring.rules import CREDENTIALS_NAME, SCALING, Measured, prometheus_rule, rule_object
from components.monitoring.runbooks import with_addresses
from components.monitoring.scraping import own_targets, pod_monitor, scraped_namespaces
from components.namespace import Namespace
from components.network_policies import Peer, allow_ingress, peer
from components.placing import Placing, budget
from components.scrape_target import ScrapeTarget
from components.specs.monitoring import MonitoringSpec
from components.specs.promises import SitePromise
from floor import namespaces

NAMESPACE = namespaces.MONITORING
# A volume, an image of 100 MB, and what was written before it stopped.
_PATIENCE_S = 900
_SCRAPER = peer(prometheus.LABELS, NAMESPACE)


def scrapers(spec: MonitoringSpec) -> list[Peer]:
    """Pods that may read metrics; none where nothing measures.

    Never a whole namespace: an engine's port has its whole API, without a key.
    """
    if spec.system == "external":
        return [peer(prometheus.ANY_PROMETHEUS, spec.scraper_namespace)]
    return [_SCRAPER] if spec.system == "prometheus_operator" else []


def network_policies(copies: int = 1, askers: Sequence[Peer] = ()) -> list[dict[str, Any]]:
    """Prometheus reads the metrics of this namespace's pods, and sends Alertmanager alerts.

    copies: of Alertmanager, which reach each other. askers: the only pods that reach Prometheus.
    """
    policies = [
        allow_ingress(name, NAMESPACE, pods, [([peer(prometheus.LABELS)], [port])])
        for name, pods, port in (
            ("alertmanager", alertmanager.LABELS, alertmanager.PORT),
            (kube_state_metrics.NAME, {NAME_LABEL: kube_state_metrics.NAME}, kube_state_metrics.PORT),
            (operator.NAME, {NAME_LABEL: operator.NAME}, operator.PORT),
        )
    ]
    if askers:
        policies.append(allow_ingress("prometheus", NAMESPACE, prometheus.LABELS, [(askers, [prometheus.PORT])]))
    if copies > 1:
        mesh = [{"protocol": protocol, "port": alertmanager.MESH_PORT} for protocol in ("TCP", "UDP")]
        policies[0]["spec"]["ingress"].append({"from": [peer(alertmanager.LABELS)], "ports": mesh})
    return policies


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """The site's settings, and what of the platform is measured."""

    spec: MonitoringSpec
    site: str
    """Its name, which every alert carries."""
    images: Mapping[str, str]
    """By their names in versions.yaml."""
    targets: Sequence[ScrapeTarget]
    """Of the platform; what measures adds its own."""
    promise: SitePromise
    """What alerts hold the site to."""
    measured: Measured
    """Parts that alerts can be about."""
    storage_class: str
    placing: Placing
    """Nodes that can mount volumes of this class."""
    needs: Sequence[pulumi.Resource]
    """Definitions, the namespaces of the targets, and what offers volumes."""
    filled: Sequence[Mapping[str, Any]] = ()
    """What fills Secrets of the namespace out of the site's store."""
    askers: Sequence[Peer] = ()
    """Pods that may ask Prometheus: what scales models by its answers."""
    host_jobs: Sequence[str] = ()
    """Jobs by which the program's Prometheus reads nodes and the control plane; none where it does not."""
    credential_ends: Mapping[str, Mapping[str, pulumi.Output[int]]] = field(default_factory=dict)
    """When the cluster's credentials end, in seconds since 1970, by what each is and its name."""


@dataclass(frozen=True, kw_only=True)
class MonitoringHandle:
    """Monitoring in force: every monitor is there, and the program's own Prometheus answers."""

    ready: list[pulumi.Resource]


class Monitoring(Component, token="monitoring:Monitoring"):
    """Monitors of every target, rules and dashboards; with `prometheus_operator` also the programs that read them."""

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        own = args.spec.system == "prometheus_operator"
        here = pulumi.ResourceOptions(parent=self)
        # Its claims are deleted with it, so what stores them is uninstalled after it.
        space = Namespace(NAMESPACE, pod_security="restricted", needs=args.needs, opts=here).handle
        needs = [*args.needs, space.ready]
        targets = [*args.targets, *(own_targets() if own else [])]
        labels = prometheus.SELECTED if own else args.spec.labels
        monitors = [
            self.child(f"monitor-{target.name}", pod_monitor(target, NAMESPACE, labels), depends_on=needs)
            for target in targets
        ]
        rule = prometheus_rule(NAMESPACE, labels, args.promise, args.measured)
        if args.spec.runbooks_url:
            rule = with_addresses(rule, args.spec.runbooks_url)
        monitors.append(self.child("rules", rule, depends_on=needs))
        if args.credential_ends:
            monitors.append(self.child("credential-ends", _ends_rule(args.credential_ends, labels), depends_on=needs))
        for dashboard, body in dashboard_config_maps(NAMESPACE, hosts=bool(args.host_jobs)).items():
            self.child(f"dashboard-{dashboard}", body, depends_on=[space.ready])
        self.handle = MonitoringHandle(
            ready=[*monitors, *(self._servers(args, targets, needs, monitors) if own else [])]
        )
        self.finish(namespace=NAMESPACE)

    def _servers(
        self,
        args: MonitoringArgs,
        targets: Sequence[ScrapeTarget],
        needs: Sequence[pulumi.Resource],
        read: Sequence[pulumi.Resource],
    ) -> list[pulumi.Resource]:
        """The operator first; Prometheus once it may read all, so that its first configuration has every target."""
        for policy in network_policies(args.spec.copies, args.askers):
            self.child(f"network-policy-{policy['metadata']['name']}", policy, depends_on=needs)
        several = {"prometheus": prometheus.LABELS, "alertmanager": alertmanager.LABELS} if args.spec.copies > 1 else {}
        for server, pods in several.items():
            self.child(f"{server}-disruption-budget", budget(server, NAMESPACE, pods), depends_on=needs)
        images, watched = args.images, scraped_namespaces(targets)
        everywhere = any(target.namespace is None for target in targets)
        snapshots = args.measured.etcd_backup_every_h is not None
        seen_in = sorted({*watched, *([namespaces.ETCD_BACKUP] if snapshots else [])})
        more = [
            *([kube_state_metrics.CRON_JOBS] if snapshots else []),
            *([kube_state_metrics.AUTOSCALERS] if SCALING in args.measured.parts else []),
        ]
        permissions = kube_state_metrics.state_permissions(NAMESPACE, seen_in, more)
        state = self._granted("state", permissions, needs)
        seen = kube_state_metrics.state_deployment(NAMESPACE, seen_in, image=images["kube_state_metrics"], more=more)
        may_operate = self._granted("operator", operator.operator_permissions(NAMESPACE), needs)
        operates = operator.operator_deployment(
            NAMESPACE, image=images["prometheus_operator"], reloader_image=images["config_reloader"]
        )
        operated = self.child("operator", operates, depends_on=may_operate)
        receiver = alertmanager.alertmanager(
            NAMESPACE,
            copies=args.spec.copies,
            image=images["alertmanager"],
            secret=args.spec.alerts_secret,
            storage_class=args.storage_class,
            placing=args.placing,
        )
        may_scrape = prometheus.prometheus_permissions(NAMESPACE, watched, everywhere=everywhere)
        scraper = prometheus.prometheus(
            NAMESPACE,
            args.spec,
            site=args.site,
            image=images["prometheus"],
            storage_class=args.storage_class,
            placing=args.placing,
            scrapes={"name": host_scrapes.NAME, "key": host_scrapes.KEY} if args.host_jobs else None,
        )
        configured = [
            self.child(f"filled-{body['metadata']['name']}", body, depends_on=needs, patience_s=_PATIENCE_S)
            for body in args.filled
        ]
        after = [operated, *self._granted("prometheus", may_scrape, needs), *self._hosts(args, needs), *read]
        return [
            self.child("state", seen, depends_on=state),
            self.child("alertmanager", receiver, depends_on=[operated, *configured], patience_s=_PATIENCE_S),
            self.child("prometheus", scraper, depends_on=after, patience_s=_PATIENCE_S),
        ]

    def _hosts(self, args: MonitoringArgs, needs: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        """What Prometheus needs to read nodes and the control plane, where it does."""
        if not args.host_jobs:
            return []
        jobs = args.host_jobs
        scrapes = host_scrapes.host_scrapes(
            NAMESPACE, etcd=host_scrapes.ETCD in jobs, pod_network=host_scrapes.CILIUM in jobs
        )
        granted = self._granted("hosts", host_scrapes.host_permissions(NAMESPACE), needs)
        return [*granted, self.child("host-scrapes", scrapes, depends_on=needs)]

    def _granted(
        self, suffix: str, bodies: Sequence[Mapping[str, Any]], needs: Sequence[pulumi.Resource]
    ) -> list[pulumi.Resource]:
        """An account with its permissions, each in its namespace."""
        return [
            self.child("-".join([suffix, body["kind"].lower(), *_elsewhere(body)]), body, depends_on=needs)
            for body in bodies
        ]


def _ends_rule(ends: Mapping[str, Mapping[str, pulumi.Output[int]]], labels: Mapping[str, str]) -> dict[str, Any]:
    """An object of its own, so that a preview still shows all other rules where an end is not known yet."""
    texts = {
        kind: {name: end.apply(recording.timestamp) for name, end in of_kind.items()} for kind, of_kind in ends.items()
    }
    return rule_object(CREDENTIALS_NAME, NAMESPACE, labels, recording.credential_ends(texts))


def _elsewhere(body: Mapping[str, Any]) -> list[str]:
    """The namespace of an object in another one than this."""
    space = body["metadata"].get("namespace", NAMESPACE)
    return [] if space == NAMESPACE else [space]
