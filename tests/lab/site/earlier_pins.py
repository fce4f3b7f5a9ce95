"""Versions before those that are pinned, of the parts that the lab has in two versions (tools/earlier)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from stacks.facts import versions
from stacks.facts.versions import Versions

# Name in upgrades.yaml -> what of versions.yaml is another then.
PINS: Mapping[str, Mapping[str, Any]] = {
    "Prometheus operator with its CRDs": {
        "images": {
            "prometheus_operator": "quay.io/prometheus-operator/prometheus-operator:v0.84.0",
            "config_reloader": "quay.io/prometheus-operator/prometheus-config-reloader:v0.84.0",
        },
        "crds": {"prometheus-operator.json": "c3891fdc0d8f8c3145410e1f11e863e368128c6db85815edff2e927c610b2467"},
        "crd_versions": {"prometheus-operator.json": "v0.84.0"},
    },
    "Prometheus": {"images": {"prometheus": "quay.io/prometheus/prometheus:v3.11.0"}},
    "Alertmanager": {"images": {"alertmanager": "quay.io/prometheus/alertmanager:v0.30.0"}},
    "kube-state-metrics": {
        "images": {"kube_state_metrics": "registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.16.0"}
    },
    # The lab has one Envoy, which runs under both tags.
    "Envoy Gateway with its CRDs and Gateway API": {
        "images": {"envoy": "docker.io/envoyproxy/envoy:distroless-v1.39.0"},
        "charts": {"envoy_gateway": {"version": "v1.9.0"}},
        "crds": {"envoy-gateway.json": "cbe80d995af0bbcbaa36bf4538aced48e52cfd909a96325651ff4da5589922a0"},
        "crd_versions": {"envoy-gateway.json": "v1.9.0"},
    },
}


def text_before(parts: Iterable[str]) -> str:
    """versions.yaml with these parts at their earlier versions."""
    document = copy.deepcopy(yaml.safe_load(versions.FILE.read_text()))
    for part in parts:
        _write_over(document, PINS[part])
    return yaml.safe_dump(document, sort_keys=False)


def pins_before(parts: Iterable[str]) -> Versions:
    """The same, read."""
    return Versions.model_validate(yaml.safe_load(text_before(parts)))


def _write_over(document: dict[str, Any], changed: Mapping[str, Any]) -> None:
    for key, value in changed.items():
        if isinstance(value, Mapping):
            _write_over(document[key], value)
        else:
            document[key] = value
