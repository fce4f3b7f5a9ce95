"""Prometheus with its operator, and what they need; `components/monitoring` installs them, without a chart."""

from __future__ import annotations

from components.addons.addon import Addon, AddonImage
from floor import namespaces

# Each is in a container of its name.
_IMAGES = ("prometheus_operator", "prometheus", "config_reloader", "alertmanager", "kube_state_metrics")
PROMETHEUS_OPERATOR = Addon(
    key="prometheus_operator",
    switch="monitoring.system",
    on="prometheus_operator",
    namespace=namespaces.MONITORING,
    images=tuple(AddonImage(name=name, container=name.replace("_", "-"), user="monitoring") for name in _IMAGES),
)
