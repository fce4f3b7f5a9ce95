"""Dashboards in the cluster: ConfigMaps that a Grafana's sidecar finds by their label."""

from __future__ import annotations

import json

from components.monitoring.dashboard_config_maps import dashboard_config_map


def test_a_dashboard_is_a_config_map_that_the_sidecar_of_a_grafana_selects() -> None:
    text = json.dumps({"title": "SLOs", "panels": [{"expr": 'a{b="c d"}'}]}, indent=1)
    body = dashboard_config_map("slo", text, "inference-monitoring")
    assert body["metadata"] == {
        "name": "dashboard-slo",
        "namespace": "inference-monitoring",
        "labels": {"grafana_dashboard": "1"},
    }
    ((file, content),) = body["data"].items()
    # Files of all ConfigMaps are in one folder of the sidecar.
    assert file == "inference-slo.json"
    assert json.loads(content) == json.loads(text)
    assert len(content) < len(text)
