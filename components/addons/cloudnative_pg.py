"""CloudNativePG, which runs PostgreSQL for the directory and the ledger, and its plugin for backups to a bucket.

Both are in one namespace, where the operator looks for plugins. Their definitions come and go with the charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonImage,
    AddonRelease,
    AddonSite,
)
from components.network_policies import Peer, allow_ingress, peer, read_by
from components.scrape_target import ScrapeTarget
from floor import namespaces

NAMESPACE = namespaces.DATABASE_OPERATOR
RELEASE, PLUGIN_RELEASE = "cloudnative-pg", "barman-cloud"
OPERATOR_PODS = {"app.kubernetes.io/name": "cloudnative-pg"}
_PLUGIN = {"app.kubernetes.io/name": "plugin-barman-cloud"}
SERVER_PODS, SERVER_METRICS_PORT = {"cnpg.io/podRole": "instance"}, 9187
"""What the operator calls the servers that it makes, and where they are measured."""
_METRICS_PORT, _WEBHOOK_PORT, _PLUGIN_PORT = 8080, 9443, 9090
# No figure of a run: clients and caches of a few objects.
_SMALL = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


def operator_values() -> dict[str, Any]:
    """Values of its chart: it answers for the namespace with the platform's servers, and finds plugins in its own."""
    watched = f"{namespaces.DATABASE},{NAMESPACE}"
    return {"config": {"data": {"WATCH_NAMESPACE": watched}}, "resources": dict(_SMALL)}


def plugin_values() -> dict[str, Any]:
    """Values of the plugin's chart. Its certificates, and the operator's for it, are of cert-manager."""
    return {"resources": dict(_SMALL)}


def network_policies(scrapers: Sequence[Peer] = ()) -> list[dict[str, Any]]:
    """The API server, which no label names, reaches the operator's webhook, and the operator the plugin."""
    return [
        allow_ingress("operator", NAMESPACE, OPERATOR_PODS, [((), [_WEBHOOK_PORT]), *read_by(scrapers, _METRICS_PORT)]),
        allow_ingress("plugin", NAMESPACE, _PLUGIN, [([peer(OPERATOR_PODS)], [_PLUGIN_PORT])]),
    ]


def content(site: AddonSite) -> AddonContent:
    """Works when Helm has seen its pods ready. The plugin is there where the site has backups."""
    releases = [AddonRelease(name=RELEASE, chart=site.charts["cloudnative_pg"], values=operator_values())]
    if "barman_cloud" in site.charts:
        releases.append(AddonRelease(name=PLUGIN_RELEASE, chart=site.charts["barman_cloud"], values=plugin_values()))
    return AddonContent(releases=releases, network_policies=network_policies(site.scrapers))


CLOUDNATIVE_PG = Addon(
    key="cloudnative_pg",
    switch="database.run_by",
    on="cloudnative_pg",
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="cloudnative_pg",
            release=RELEASE,
            uninstalled="its definitions go with it, and every PostgreSQL server of the cluster with them",
            upgraded="its pod restarts; then each PostgreSQL server restarts with the new release's manager, the one "
            "that writes last, and writes pause for seconds",
        ),
    ),
    component=AddonComponent(
        name="database-operator",
        resource_type="cloudnative_pg:CloudNativePg",
        pod_security="restricted",
        content=content,
        needs=("cert_manager",),
        gives="databases",
    ),
)

BARMAN_CLOUD = Addon(
    key="barman_cloud",
    switch="backs_up_database",
    on=True,
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="barman_cloud",
            release=PLUGIN_RELEASE,
            uninstalled="its definitions go with it, and nothing is backed up or restored; what the bucket has stays",
            upgraded="its pod restarts, and PostgreSQL servers restart with the new release's sidecar, one at a time",
        ),
    ),
)

POSTGRESQL = Addon(
    key="postgresql",
    switch="database.run_by",
    on="cloudnative_pg",
    namespace=namespaces.DATABASE,
    images=(AddonImage(name="postgresql", container="postgres", user="directory and ledger"),),
    targets=(
        ScrapeTarget(
            name="database",
            job="database",
            namespace=namespaces.DATABASE,
            pods=SERVER_PODS,
            port=SERVER_METRICS_PORT,
        ),
    ),
)
