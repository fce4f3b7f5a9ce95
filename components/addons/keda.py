"""KEDA: asks Prometheus how busy a model is, and has Kubernetes' own autoscaler set the number of its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonObject,
    AddonRelease,
    AddonSite,
)
from components.network_policies import Peer, allow_ingress, peer, read_by
from components.scrape_target import ScrapeTarget
from floor import namespaces

NAMESPACE = namespaces.AUTOSCALING
RELEASE = "keda"
# By the chart: its pods' labels and their ports.
OPERATOR_PODS = {"app": "keda-operator"}
_ADAPTER_PODS = {"app": "keda-operator-metrics-apiserver"}
_METRICS_PORT, _VALUES_PORT, _API_PORT = 8080, 9666, 6443
# No figure of a run: a client and caches of a few objects. The limit is the chart's own.
_SMALL = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "1000Mi"}}


def keda_values() -> dict[str, Any]:
    """Values of KEDA's chart: Deployments by what Prometheus answers, and no key of the cluster in its reach."""
    return {
        "image": {"pullPolicy": "IfNotPresent"},
        # What it would refuse the API server's schema and KEDA's own condition Ready show too.
        "webhooks": {"enabled": False},
        # It reads Secrets for triggers that log in; none of the program's does.
        "permissions": {"operator": {"restrict": {"secret": True}}, "metricServer": {"restrict": {"secret": True}}},
        # Only Deployments and StatefulSets, in place of whatever has a scale.
        "rbac": {"enabledCustomScaledRefKinds": False},
        "prometheus": {"operator": {"enabled": True}},
        "resources": {"operator": _SMALL, "metricServer": _SMALL},
    }


def network_policies(scrapers: Sequence[Peer] = ()) -> list[dict[str, Any]]:
    """The API server, which no label names, reaches the adapter by TLS, and the adapter the operator."""
    asked = [([peer(_ADAPTER_PODS)], [_VALUES_PORT]), *read_by(scrapers, _METRICS_PORT)]
    return [
        allow_ingress("metrics-apiserver", NAMESPACE, _ADAPTER_PODS, [((), [_API_PORT])]),
        allow_ingress("operator", NAMESPACE, OPERATOR_PODS, asked),
    ]


def content(site: AddonSite) -> AddonContent:
    """Works when the API server has external metrics of it. Its definitions come and go with the chart."""
    chart = site.charts["keda"]
    return AddonContent(
        releases=[AddonRelease(name=RELEASE, chart=chart, values=keda_values())],
        network_policies=network_policies(site.scrapers),
        objects=[AddonObject(suffix="answering", body=_answering(f"{RELEASE}-{chart.version}"), is_patch=True)],
    )


def _answering(installed: str) -> dict[str, Any]:
    """A mark on the API of external metrics, written when the API server reaches it and trusts its certificate."""
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {
            "name": "v1beta1.external.metrics.k8s.io",
            "annotations": {
                f"inference-platform/{RELEASE}": installed,
                "pulumi.com/waitFor": "condition=Available",
            },
        },
    }


KEDA = Addon(
    key="keda",
    switch="installs_keda",
    on=True,
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="keda",
            release=RELEASE,
            uninstalled="its definitions go with it, and every ScaledObject of the cluster with them; Deployments keep "
            "the replicas that they have, and nothing changes their number",
            upgraded="its pods restart; until they answer, every model keeps the replicas that it has",
        ),
    ),
    targets=(
        # Its samples are about ScaledObjects of any namespace.
        ScrapeTarget(
            name="autoscaling",
            job="autoscaling",
            namespace=NAMESPACE,
            pods=OPERATOR_PODS,
            port=_METRICS_PORT,
            own_labels_win=True,
        ),
    ),
    component=AddonComponent(
        name="autoscaling",
        resource_type="keda:Keda",
        pod_security="restricted",
        content=content,
        gives="autoscaling",
    ),
)
