"""Dashboards as ConfigMaps: the sidecar of a Grafana loads those with this label, of the namespaces that it watches.

The label is the default of Grafana's chart and of kube-prometheus-stack (`sidecar.dashboards.label`, `labelValue`):
https://github.com/grafana/helm-charts/blob/main/charts/grafana/values.yaml
"""

from __future__ import annotations

import json
from typing import Any

from manifests import grafana

LABEL = {"grafana_dashboard": "1"}


OF_HOSTS = "hosts"
"""The dashboard that shows nothing where nodes are not measured."""


def dashboard_config_maps(namespace: str, *, hosts: bool) -> dict[str, dict[str, Any]]:
    """Those of all dashboards, by the dashboard's name. hosts: whether nodes are measured."""
    shown = {name: text for name, text in grafana.dashboards().items() if hosts or name != OF_HOSTS}
    return {name: dashboard_config_map(name, text, namespace) for name, text in shown.items()}


def dashboard_config_map(name: str, text: str, namespace: str) -> dict[str, Any]:
    """The ConfigMap of one dashboard; `text` is its JSON, which goes in without blanks: the state keeps it too."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"dashboard-{name}", "namespace": namespace, "labels": LABEL},
        "data": {f"inference-{name}.json": json.dumps(json.loads(text), separators=(",", ":"))},
    }
