"""What is measured: which pods, at which port, under which labels. Rules and dashboards rely on jobs and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from components.gateway import gateway, gateway_controllers
from components.models import engines, model_server
from components.monitoring import alertmanager, kube_state_metrics, operator, prometheus
from components.monitoring.pods import NAME_LABEL
from components.scrape_target import POD_META, Relabeling, ScrapeTarget, label_from
from components.specs.inference_pool import METRICS_PORT, PICKER
from floor import namespaces
from services.ledger import variables as ledger
from services.portal import variables as portal

ENGINES = "inference-engines"
"""Job of the replicas of every model."""
_MODEL = f"{POD_META}_label_app_kubernetes_io_instance"


# A client is TENANT.KEY, and no tenant's name has a dot.
_TENANT: Relabeling = {
    "action": "replace",
    "sourceLabels": [gateway_controllers.CLIENT_ATTRIBUTE],
    "regex": r"([^.]+)\..+",
    "targetLabel": "tenant",
    "replacement": "$1",
}


# No rule or panel asks for them, and they are 75 of the 142 samples of a client and model: five kinds of tokens with 15
# buckets each (AI gateway v1.0.0, internal/metrics/genai.go). Prometheus counts samples after this.
_NO_TOKEN_BUCKETS: Relabeling = {
    "action": "drop",
    "sourceLabels": ["__name__"],
    "regex": "gen_ai_client_token_usage_bucket",
}


# Some panels about the proxies of models ask for metrics of Envoy by name alone.
_CERTIFICATES_ALONE: Relabeling = {
    "action": "keep",
    "sourceLabels": ["__name__"],
    "regex": "envoy_server_days_until_first_cert_expiring",
}


def serving_targets(
    models_namespace: str, gateway_namespace: str, proxy_namespace: str | None, *, shipped: bool = False
) -> list[ScrapeTarget]:
    """The way of a request: proxies, what the AI gateway counts of requests, pickers, engines.

    shipped: whether a ledger gets each request.
    """
    proxies = gateway.proxy_labels(gateway_namespace)
    return [
        ScrapeTarget(
            name="engines",
            job=ENGINES,
            namespace=models_namespace,
            pods={NAME_LABEL: model_server.SERVER},
            port=engines.PORT,
            labels=[label_from(_MODEL, "model")],
        ),
        ScrapeTarget(
            name="pickers",
            job="inference-pickers",
            namespace=models_namespace,
            pods={NAME_LABEL: PICKER},
            port=METRICS_PORT,
            labels=[label_from(_MODEL, "model")],
        ),
        ScrapeTarget(
            name="proxies",
            job="inference-proxies",
            namespace=proxy_namespace,
            pods=proxies,
            port=gateway.ENVOY_METRICS_PORT,
            path="/stats/prometheus",
        ),
        ScrapeTarget(
            name="requests",
            job="inference-requests",
            namespace=proxy_namespace,
            pods=proxies,
            port=gateway.REQUEST_METRICS_PORT,
            sample_labels=[_NO_TOKEN_BUCKETS, _TENANT],
        ),
        *([_shippers(proxy_namespace, proxies)] if shipped else []),
    ]


def _shippers(proxy_namespace: str | None, proxies: Mapping[str, str]) -> ScrapeTarget:
    name = ledger.SHIPPER
    return ScrapeTarget(name=name, job=name, namespace=proxy_namespace, pods=proxies, port=ledger.SHIPPER_PORT)


def portal_target(gateway_namespace: str, proxy_namespace: str | None) -> ScrapeTarget:
    """The proxies before the portal's pages: when their certificates end."""
    return ScrapeTarget(
        name="portal-proxies",
        job="portal-proxies",
        namespace=proxy_namespace,
        pods=gateway.owned_by_gateway(portal.SERVICE, gateway_namespace),
        port=gateway.ENVOY_METRICS_PORT,
        path="/stats/prometheus",
        sample_labels=[_CERTIFICATES_ALONE],
    )


def own_targets() -> list[ScrapeTarget]:
    """What measures, measured."""
    return [
        _own(kube_state_metrics.NAME, {NAME_LABEL: kube_state_metrics.NAME}, kube_state_metrics.PORT, labels_win=True),
        _own("prometheus", prometheus.LABELS, prometheus.PORT),
        _own("alertmanager", alertmanager.LABELS, alertmanager.PORT),
        _own(operator.NAME, {NAME_LABEL: operator.NAME}, operator.PORT),
    ]


def _own(name: str, pods: Mapping[str, str], port: int, *, labels_win: bool = False) -> ScrapeTarget:
    return ScrapeTarget(
        name=name, job=name, namespace=namespaces.MONITORING, pods=pods, port=port, own_labels_win=labels_win
    )


def pod_monitor(target: ScrapeTarget, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """The target as the operator reads it. namespace, labels: where it is, and by what it is selected."""
    where = {"any": True} if target.namespace is None else {"matchNames": [target.namespace]}
    named: Relabeling = {"action": "replace", "targetLabel": "job", "replacement": target.job}
    return {
        "apiVersion": operator.API,
        "kind": "PodMonitor",
        "metadata": {"name": target.name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "namespaceSelector": where,
            "selector": {"matchLabels": dict(target.pods)},
            "podMetricsEndpoints": [
                {
                    "portNumber": target.port,
                    "path": target.path,
                    "interval": f"{prometheus.INTERVAL_S}s",
                    "honorLabels": target.own_labels_win,
                    "relabelings": [dict(entry) for entry in (named, *target.labels)],
                    **(
                        {"metricRelabelings": [dict(entry) for entry in target.sample_labels]}
                        if target.sample_labels
                        else {}
                    ),
                }
            ],
        },
    }


def scraped_namespaces(targets: Iterable[ScrapeTarget]) -> list[str]:
    """Those that are known, sorted."""
    return sorted({target.namespace for target in targets if target.namespace is not None})
