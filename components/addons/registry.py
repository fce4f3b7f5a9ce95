"""Every addon, and which of them a site lets the program install. What is about addons goes through this list."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from components.addons.addon import Addon, AddonChart
from components.addons.callers import DIRECTORY, GATEKEEPER, LEDGER, PORTAL, WATCHER
from components.addons.cert_manager import CERT_MANAGER
from components.addons.cloudnative_pg import BARMAN_CLOUD, CLOUDNATIVE_PG, POSTGRESQL
from components.addons.external_dns import EXTERNAL_DNS
from components.addons.external_secrets import EXTERNAL_SECRETS
from components.addons.gateways import AI_GATEWAY, ENVOY_GATEWAY, LIMIT_COUNTERS, LIMIT_SERVICE
from components.addons.gpu_stack import DEVICE_PLUGIN, GPU_OPERATOR
from components.addons.grafana import GRAFANA
from components.addons.keda import KEDA
from components.addons.leader_worker_set import LEADER_WORKER_SET
from components.addons.logs import LOG_COLLECTOR, LOG_STORE
from components.addons.longhorn import LONGHORN
from components.addons.metallb import METALLB
from components.addons.node_exporter import NODE_EXPORTER
from components.addons.prometheus_operator import PROMETHEUS_OPERATOR
from components.addons.rdma_devices import NETWORK_OPERATOR

ADDONS: tuple[Addon, ...] = (
    ENVOY_GATEWAY,
    AI_GATEWAY,
    LIMIT_SERVICE,
    LIMIT_COUNTERS,
    GATEKEEPER,
    DIRECTORY,
    PORTAL,
    LEDGER,
    WATCHER,
    CERT_MANAGER,
    EXTERNAL_SECRETS,
    EXTERNAL_DNS,
    GPU_OPERATOR,
    DEVICE_PLUGIN,
    NETWORK_OPERATOR,
    LONGHORN,
    METALLB,
    PROMETHEUS_OPERATOR,
    NODE_EXPORTER,
    GRAFANA,
    LOG_COLLECTOR,
    LOG_STORE,
    KEDA,
    LEADER_WORKER_SET,
    CLOUDNATIVE_PG,
    BARMAN_CLOUD,
    POSTGRESQL,
)


def installed(site: object) -> list[Addon]:
    """Those that this site lets the program install. site: a SiteConfig, which this room does not know."""
    return [addon for addon in ADDONS if at(site, addon.switch) == addon.on]


def at(site: object, path: str) -> object:
    """The value of a site's key, with dots; the site itself without one."""
    return reduce(getattr, path.split("."), site) if path else site


def chart_namespaces() -> Mapping[str, str]:
    """Chart's name in versions.yaml -> the namespace of its release."""
    return {chart.name: addon.namespace for addon in ADDONS for chart in addon.charts}


def chart_of_release(name: str) -> AddonChart | None:
    """The chart that Helm installs as a release of this name; None where no addon has it."""
    charts = (chart for addon in ADDONS for chart in addon.charts)
    return next((chart for chart in charts if chart.release == name), None)
