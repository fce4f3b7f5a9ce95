"""Envoy Gateway and the AI gateway, installed by chart if the cluster does not have them yet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pulumi

from components.addons.addon import AddonRelease
from components.addons.charts import Chart
from components.addons.gateways import (
    AI_GATEWAY_METRICS_PORT,
    AI_GATEWAY_PODS,
    AI_RELEASE,
    ENVOY_GATEWAY_METRICS_PORT,
    ENVOY_GATEWAY_PODS,
    ENVOY_RELEASE,
    LIMIT_SERVICE_PODS,
)
from components.addons.installed import helm_release
from components.component import Component
from components.minted import MCP_SEED, mint, minted
from components.namespace import Namespace
from components.network_policies import Peer, allow_ingress, peer, read_by
from floor import namespaces
from floor.headers import CLIENT_HEADER

ENVOY_NAMESPACE, AI_NAMESPACE = namespaces.ENVOY_GATEWAY, namespaces.AI_GATEWAY
# Ports of the controllers' pods: xDS and Wasm modules for the proxies, the extension server for Envoy Gateway.
_XDS_PORT, _WASM_PORT, _EXTENSION_PORT, _WEBHOOK_PORT = 18000, 18002, 1063, 9443
# Of the limit service, and where it asks Envoy Gateway for its rules.
_LIMITS_PORT, _LIMITS_XDS_PORT = 8081, 18001
# Label of the AI gateway's metrics with the client of a request.
CLIENT_ATTRIBUTE = "client"

# What Envoy Gateway's chart takes for the domain of Services.
_CHART_DOMAIN = "cluster.local"


def envoy_gateway_values(dns_domain: str, limit_service: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Chart values with which Envoy Gateway asks the AI gateway about every listener, route and cluster.

    limit_service: fields of its configuration by which it starts the limit service; None where no tenant has a limit.
    """
    everything = {"includeAll": True}
    config = {
        # Lua also without tiers: were it switched off together with the last one, every route would answer 500
        # until their policy is gone.
        "extensionApis": {"enableBackend": True, "enableEnvoyPatchPolicy": True, "enableLua": True},
        "extensionManager": {
            "backendResources": [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "version": "v1"}],
            "hooks": {
                "xdsTranslator": {
                    "translation": {
                        "listener": everything,
                        "route": everything,
                        "cluster": everything,
                        "secret": everything,
                    },
                    "post": ["Translation", "Cluster", "Route"],
                }
            },
            "service": {
                "fqdn": {
                    "hostname": f"ai-gateway-controller.{AI_NAMESPACE}.svc.{dns_domain}",
                    "port": _EXTENSION_PORT,
                }
            },
        },
        **(limit_service or {}),
    }
    digest = sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    return {
        # Next to the CRDs, which skip_crds leaves out, this part has a policy about who may change them.
        "crds": {"enabled": False},
        # A webhook for routing by zone, of which a rack has one. As a hook it would outlive the release.
        "topologyInjector": {"enabled": False},
        "config": {"envoyGateway": config},
        # Envoys find the gateway by it, and its certificates are for it (internal/envoygateway/config/config.go).
        **({} if dns_domain == _CHART_DOMAIN else {"kubernetesClusterDomain": dns_domain}),
        # The chart's pod stays when the configuration changes, which would reach it a minute after the release is done;
        # what needs it, such as Lua, would be refused until then.
        "deployment": {"pod": {"annotations": {"inference-platform/config-digest": digest}}},
    }


def ai_gateway_values(
    webhook_certificate_rotation: int, mcp_seed: pulumi.Input[str], *, measured: bool = False
) -> dict[str, Any]:
    """Chart values of the AI gateway; its chart makes a certificate whenever the Secret of this name is not there.

    mcp_seed: what the keys of MCP sessions are made of; the chart's own is in its documentation. measured: its metrics
    name the client, whom the key check has put into a header before the request gets there.
    """
    attributes = {"metricsRequestHeaderAttributes": f"{CLIENT_HEADER}:{CLIENT_ATTRIBUTE}"} if measured else {}
    return {
        "controller": {
            "mutatingWebhook": {"tlsCertSecretName": f"webhook-certificate-{webhook_certificate_rotation}"},
            "mcp": {"sessionEncryption": {"seed": mcp_seed}},
            **attributes,
        },
        # In debug logs, in case they are switched on.
        "extProc": {"enableRedaction": True},
    }


def network_policies(scrapers: Sequence[Peer] = (), *, limited: bool = False) -> list[dict[str, Any]]:
    """What the controllers' pods let in: proxies that ask for configuration, Envoy Gateway's calls, a webhook's.

    scrapers: who may read their metrics. limited: whether Envoy Gateway starts the limit service.

    The API server has no labels to name it by, so the webhook's port is open; it speaks only TLS.
    """
    proxies = peer({"app.kubernetes.io/component": "proxy", "app.kubernetes.io/managed-by": "envoy-gateway"})
    return [
        allow_ingress(
            "envoy-gateway",
            ENVOY_NAMESPACE,
            ENVOY_GATEWAY_PODS,
            [
                ([proxies], [_XDS_PORT, _WASM_PORT]),
                *([([peer(LIMIT_SERVICE_PODS)], [_LIMITS_XDS_PORT])] if limited else []),
                *read_by(scrapers, ENVOY_GATEWAY_METRICS_PORT),
            ],
        ),
        *(
            [
                allow_ingress(
                    "limit-service",
                    ENVOY_NAMESPACE,
                    LIMIT_SERVICE_PODS,
                    [([proxies], [_LIMITS_PORT])],
                )
            ]
            if limited
            else []
        ),
        allow_ingress(
            "ai-gateway",
            AI_NAMESPACE,
            AI_GATEWAY_PODS,
            [
                ([peer(ENVOY_GATEWAY_PODS, ENVOY_NAMESPACE)], [_EXTENSION_PORT]),
                ((), [_WEBHOOK_PORT]),
                *read_by(scrapers, AI_GATEWAY_METRICS_PORT),
            ],
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class GatewayControllersArgs:
    """Both charts, and the definitions that must be there before them."""

    envoy_gateway: Chart
    ai_gateway: Chart
    webhook_certificate_rotation: int
    needs: list[pulumi.Resource]
    dns_domain: str = _CHART_DOMAIN
    """Domain of the cluster's Services."""
    scrapers: Sequence[Peer] = ()
    """Pods that may read their metrics; none where nothing measures."""
    limit_service: Mapping[str, Any] | None = None
    """Fields of Envoy Gateway's configuration by which it starts the limit service; None where no tenant has a
    limit."""
    patience_s: int = 600
    """How long Helm waits for each release."""
    recovered: str | None = None
    """File with the seed that a lost state had."""


@dataclass(frozen=True, kw_only=True)
class GatewayControllersHandle:
    """Running controllers; empty where the site sets `external`."""

    ready: list[pulumi.Resource]


class GatewayControllers(Component, token="gateway_controllers:GatewayControllers"):
    """Both controllers, each in a namespace of its own. Definitions come from the CRD bundle, never from a chart.

    Releases, not rendered charts: Envoy Gateway's certificates come from a hook of its chart, and the AI gateway's
    chart looks into the cluster for the certificate that it made before.
    """

    def __init__(self, name: str, args: GatewayControllersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        here = pulumi.ResourceOptions(parent=self)
        made: list[pulumi.Resource] = []
        spaces: dict[str, pulumi.Resource] = {}
        seed, measured = self._mcp_seed(args.recovered), bool(args.scrapers)
        ai_values = ai_gateway_values(args.webhook_certificate_rotation, seed, measured=measured)
        envoy_values = envoy_gateway_values(args.dns_domain, args.limit_service)
        for suffix, space, release in (
            ("ai-gateway", AI_NAMESPACE, AddonRelease(name=AI_RELEASE, chart=args.ai_gateway, values=ai_values)),
            (
                "envoy-gateway",
                ENVOY_NAMESPACE,
                AddonRelease(name=ENVOY_RELEASE, chart=args.envoy_gateway, values=envoy_values),
            ),
        ):
            ready = spaces[space] = Namespace(space, pod_security="privileged", opts=here).handle.ready
            after = pulumi.ResourceOptions(parent=self, depends_on=[ready, *args.needs])
            called = f"{name}-{suffix}"
            made.append(helm_release(called, release, space, after, skip_crds=True, patience_s=args.patience_s))
        for policy in network_policies(args.scrapers, limited=args.limit_service is not None):
            suffix = f"network-policy-{policy['metadata']['name']}"
            self.child(suffix, policy, depends_on=[spaces[policy["metadata"]["namespace"]]])
        self.handle = GatewayControllersHandle(ready=made)
        self.finish(namespaces=[ENVOY_NAMESPACE, AI_NAMESPACE])

    def _mcp_seed(self, recovered: str | None) -> pulumi.Output[str]:
        """Random, made once and kept in the encrypted state."""
        return minted(self, "mcp-seed", mint(MCP_SEED, recovered=recovered))
