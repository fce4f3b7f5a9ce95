"""Envoy Gateway and the AI gateway, which `components/gateway/gateway_controllers.py` installs; what counts for limits.

Envoy Gateway starts the limit service; `components/tenants/limits.py` has its settings, and installs the counters.
"""

from __future__ import annotations

from components.addons.addon import Addon, AddonChart, AddonImage
from components.scrape_target import ScrapeTarget
from floor import namespaces

ENVOY_GATEWAY_METRICS_PORT, AI_GATEWAY_METRICS_PORT = 19001, 8080
# Labels of their pods, by the charts.
ENVOY_GATEWAY_PODS = {"control-plane": "envoy-gateway"}
AI_GATEWAY_PODS = {"app.kubernetes.io/name": "ai-gateway-helm"}
# As Envoy Gateway has it (internal/infrastructure/kubernetes/ratelimit/resource.go), of its pods and their container.
_LIMIT_SERVICE = "envoy-ratelimit"
LIMIT_SERVICE_PODS = {"app.kubernetes.io/name": _LIMIT_SERVICE}
COUNTERS = "limit-counters"
ENVOY_RELEASE, AI_RELEASE = "eg", "aieg"
_JOB = "gateway-controllers"


def _chart(name: str, release: str) -> AddonChart:
    return AddonChart(
        name=name,
        release=release,
        uninstalled="what Envoy serves goes on as it is, and no change reaches it any more",
        upgraded="its controllers restart, and Envoy's pods may be rolled to the version that they bring",
    )


ENVOY_GATEWAY = Addon(
    key="envoy_gateway",
    switch="gateway.controllers",
    on="chart",
    namespace=namespaces.ENVOY_GATEWAY,
    charts=(_chart("envoy_gateway", ENVOY_RELEASE),),
    images=(AddonImage(name="envoy", container="envoy", user="proxies of the gateway", tag_prefix="distroless-"),),
    targets=(
        ScrapeTarget(
            name="envoy-gateway",
            job=_JOB,
            namespace=namespaces.ENVOY_GATEWAY,
            pods=ENVOY_GATEWAY_PODS,
            port=ENVOY_GATEWAY_METRICS_PORT,
        ),
    ),
)
AI_GATEWAY = Addon(
    key="ai_gateway",
    switch="gateway.controllers",
    on="chart",
    namespace=namespaces.AI_GATEWAY,
    charts=(_chart("ai_gateway", AI_RELEASE),),
    targets=(
        ScrapeTarget(
            name="ai-gateway",
            job=_JOB,
            namespace=namespaces.AI_GATEWAY,
            pods=AI_GATEWAY_PODS,
            port=AI_GATEWAY_METRICS_PORT,
        ),
    ),
)


def _of_limits(name: str, namespace: str, container: str) -> Addon:
    image = AddonImage(name=name, container=container, user="limits of tenants")
    return Addon(key=name, switch="limits_tenants", on=True, namespace=namespace, images=(image,))


LIMIT_SERVICE = _of_limits("limit_service", namespaces.ENVOY_GATEWAY, _LIMIT_SERVICE)
LIMIT_COUNTERS = _of_limits("limit_counters", namespaces.GATEWAY, COUNTERS)
