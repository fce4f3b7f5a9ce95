"""Prometheus: reads every target each 15 seconds, keeps what it read, and evaluates the rules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from components.monitoring import alertmanager
from components.monitoring.operator import API
from components.monitoring.permissions import in_cluster, in_namespace, rule, service_account
from components.monitoring.pods import NAME_LABEL, POD_SECURITY, apart, release_of, volume_claim
from components.placing import Placing, placed
from components.specs.monitoring import MonitoringSpec
from floor import namespaces

NAME = "inference"
ACCOUNT = "prometheus"
ANY_PROMETHEUS = {NAME_LABEL: "prometheus"}
"""Label that the operator gives to the pods of each Prometheus; those of an agent have another one."""
LABELS = {**ANY_PROMETHEUS, "operator.prometheus.io/name": NAME}
"""Labels that the operator gives to the pods of this one."""
PORT = 9090
ADDRESS = f"http://prometheus-operated.{namespaces.MONITORING}:{PORT}"
"""The operator makes this Service."""
INTERVAL_S = 15
MOST_SAMPLES, MOST_BODY = 200_000, "128MB"
"""Of one target at once."""
SELECTED = {"inference-platform/monitoring": "selected"}
"""Label of the monitors and rules that belong to it."""
# No limit of memory: it would end the one that watches when there is most to see. What targets can send is limited.
_RESOURCES = {"requests": {"cpu": "100m", "memory": "512Mi"}}
# Of its volume; the rest is for the log that is written before blocks are, and for blocks that are merged.
_KEPT_SHARE = 0.8


def prometheus_permissions(namespace: str, scraped: Sequence[str], *, everywhere: bool) -> list[dict[str, Any]]:
    """Account, and where it may look for pods; in its own namespace also for Alertmanager.

    scraped: the namespaces with targets. everywhere: whether some targets' namespace is not known.
    """
    account = service_account(ACCOUNT, namespace)
    pods = rule("", ["pods"])
    beside = [rule("", ["services"]), rule("discovery.k8s.io", ["endpointslices"])]
    anywhere = in_cluster(f"{namespace}-{ACCOUNT}", account, [pods]) if everywhere else []
    spaces = sorted({namespace, *scraped})
    granted = [
        in_namespace(ACCOUNT, space, account, [pods, *(beside if space == namespace else [])]) for space in spaces
    ]
    return [account, *anywhere, *(body for bodies in granted for body in bodies)]


def prometheus(
    namespace: str,
    spec: MonitoringSpec,
    *,
    site: str,
    image: str,
    storage_class: str,
    placing: Placing,
    scrapes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One Prometheus, in as many pods as the site asks for. `up` waits until it has its configuration and answers.

    site: its name, which every alert carries. scrapes: Secret and key of scrapes beside the monitors. Each pod has the
    label prometheus_replica, which the operator drops from alerts (release 0.85, pkg/prometheus/promcfg.go), so that
    those of all are the same to Alertmanager.
    """
    return {
        "apiVersion": API,
        "kind": "Prometheus",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "annotations": {"pulumi.com/waitFor": json.dumps(["condition=Reconciled", "condition=Available"])},
        },
        "spec": {
            **apart(LABELS, spec.copies),
            "image": image,
            "version": release_of(image),
            "serviceAccountName": ACCOUNT,
            "serviceDiscoveryRole": "EndpointSlice",
            "externalLabels": {"site": site},
            "scrapeInterval": f"{INTERVAL_S}s",
            "evaluationInterval": f"{INTERVAL_S}s",
            "podMonitorSelector": {"matchLabels": SELECTED},
            "ruleSelector": {"matchLabels": SELECTED},
            **({"additionalScrapeConfigs": dict(scrapes)} if scrapes else {}),
            **_limits(),
            "retention": f"{spec.retention_days}d",
            "retentionSize": f"{int(spec.volume_gib * 1024 * _KEPT_SHARE)}MiB",
            **volume_claim(storage_class, spec.volume_gib),
            "alerting": {"alertmanagers": [_receiver(namespace)]},
            "logFormat": "json",
            "enableServiceLinks": False,
            "resources": _RESOURCES,
            "securityContext": dict(POD_SECURITY),
            **placed(placing),
        },
    }


def _limits() -> Mapping[str, Any]:
    """What one target can send at once; more counts as a failed scrape, and the target as down.

    An Envoy pod sends most: some 100 samples for each cluster and route, and at the AI gateway's port, 142 for each
    pair of client and model, of which 67 are kept. With some 335 bytes each, estimated, these limits hold 2,800 pairs.
    """
    return {
        "enforcedSampleLimit": MOST_SAMPLES,
        "enforcedBodySizeLimit": MOST_BODY,
        "enforcedLabelLimit": 64,
        "enforcedLabelValueLengthLimit": 1024,
        "arbitraryFSAccessThroughSMs": {"deny": True},
    }


def _receiver(namespace: str) -> dict[str, Any]:
    return {"namespace": namespace, "name": alertmanager.SERVICE, "port": alertmanager.PORT_NAME, "apiVersion": "v2"}
