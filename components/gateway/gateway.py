"""The front door: Envoy under Envoy Gateway and the AI gateway, with limits that long prompts and long streams need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from components.component import Component
from components.gateway.certificate import acme_issuer, certificate, private_issuer
from components.gateway.envoy_names import door_port
from components.gateway.gateway_errors import openai_errors
from components.gateway.gateway_overload import overload_patches
from components.gateway.request_log import TOKEN_COUNTS, request_log
from components.gateway.traces import tracing
from components.gateway.traffic_policies import GATEWAY, backend_traffic_policy, client_traffic_policy, target_gateway
from components.gateway.usage_log import METERED_COUNTS, Shipping, with_shipping
from components.namespace import NamespaceHandle
from components.network_policies import ANY_NAMESPACE, Peer, allow_ingress, peer, read_by
from components.objects import KubeObject
from components.placing import spread
from components.specs.certificates import CertificatesSpec
from components.specs.dns import recorded
from components.specs.gateway import GatewaySpec
from services.ledger.variables import SHIPPER_PORT

CLASS = "inference"
LISTENER = "inference"
_EG = "gateway.envoyproxy.io"
_GW = "gateway.networking.k8s.io"
_AI = "aigateway.envoyproxy.io"
# Ports of an Envoy pod: Envoy's own metrics, and those of the AI gateway's processor beside it.
ENVOY_METRICS_PORT, REQUEST_METRICS_PORT = 19001, 1064
_MEASURED = "inference-platform/measured"
# The cluster that the AI gateway adds for its processor takes no such settings from any policy.
_PROCESSOR_LIMITS = "circuit_breakers.ai-gateway-extproc-uds.default"
# For the Secret of a CA, or an issuer, which the site makes meanwhile.
_PATIENCE_S = 900
_HIDDEN_IN_TRACES = ("INPUTS", "OUTPUTS", "PROMPTS", "CHOICES", "EMBEDDINGS_TEXT", "EMBEDDINGS_VECTORS")


def gateway_class() -> dict[str, Any]:
    """The class by which Envoy Gateway finds our Gateway."""
    return {
        "apiVersion": f"{_GW}/v1",
        "kind": "GatewayClass",
        "metadata": {"name": CLASS},
        "spec": {"controllerName": f"{_EG}/gatewayclass-controller"},
    }


def load_balancer(spec: GatewaySpec, address: str | None, names: Sequence[str]) -> dict[str, Any]:
    """The Service before Envoy pods, announced as the site has it. names: whose records get its address."""
    return {
        "type": "LoadBalancer",
        "externalTrafficPolicy": spec.external_traffic_policy,
        **recorded(names),
        **({"loadBalancerIP": address} if address else {}),
        **({"loadBalancerClass": spec.load_balancer_class} if spec.load_balancer_class else {}),
    }


def envoy_proxy(
    namespace: str,
    spec: GatewaySpec,
    *,
    drain_s: int,
    measured: bool = False,
    image: str | None = None,
    shipping: Shipping | None = None,
    overflows: bool = False,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Shape of the Envoy pods.

    drain_s: a terminating pod lets streams run for this long.
    measured: the AI gateway gives its processor what to measure when a pod starts, so pods start again for it.
    image: of Envoy; None for Envoy Gateway's own. shipping: to the ledger; None where none runs.
    overflows: whether another model than theirs may answer requests. names: whose records get the address.
    """
    pod = spread(proxy_labels(namespace))
    if measured:
        pod["annotations"] = {_MEASURED: "requests"}
    through_the_door = {"spec": {"ports": [{"port": spec.port, "targetPort": door_port(spec.port)}]}}
    service = load_balancer(spec, spec.address, names)
    service["patch"] = {"type": "StrategicMerge", "value": through_the_door}
    body: dict[str, Any] = {
        "apiVersion": f"{_EG}/v1alpha1",
        "kind": "EnvoyProxy",
        "metadata": {"name": GATEWAY, "namespace": namespace},
        "spec": {
            "provider": {
                "type": "Kubernetes",
                "kubernetes": {
                    "envoyDeployment": {
                        "replicas": spec.replicas,
                        "pod": pod,
                        "patch": _patient_liveness(),
                        "container": {
                            **({"image": image} if image else {}),
                            "resources": {
                                "requests": dict(spec.requests),
                                "limits": {"memory": f"{spec.memory_mib}Mi"},
                            },
                        },
                    },
                    "envoyService": service,
                    "envoyPDB": {"maxUnavailable": 1},
                },
            },
            "shutdown": {"drainTimeout": f"{drain_s}s", "minDrainDuration": "10s"},
            "telemetry": {
                "accessLog": {"settings": [request_log(spec.request_log, overflows=overflows)]},
                **({"tracing": tracing(spec.traces)} if spec.traces else {}),
            },
            "bootstrap": {
                "type": "JSONPatch",
                "jsonPatches": [
                    *(
                        {
                            "op": "add",
                            "path": f"/layered_runtime/layers/0/static_layer/{_PROCESSOR_LIMITS}.{limit}",
                            "value": spec.max_parallel_streams,
                        }
                        for limit in ("max_requests", "max_connections", "max_pending_requests")
                    ),
                    *overload_patches(),
                ],
            },
        },
    }
    return with_shipping(body, shipping, overflows=overflows) if shipping else body


def _patient_liveness() -> dict[str, Any]:
    """Probes that take a busy Envoy for a busy one.

    With Envoy Gateway's own a container is restarted, and its streams end, after three answers of over a second.
    """
    probe = {"timeoutSeconds": 10, "failureThreshold": 6}
    containers = [{"name": name, "livenessProbe": probe} for name in ("envoy", "shutdown-manager")]
    return {"type": "StrategicMerge", "value": {"spec": {"template": {"spec": {"containers": containers}}}}}


def gateway_config(namespace: str, spec: GatewaySpec, *, shipped: bool = False) -> dict[str, Any]:
    """Token counts that every route reports, and what its processor knows of requests, and has.

    Without a count, streams carry no usage and could not be metered. Traces would hold prompts and answers by default.
    shipped: whether a ledger gets them.
    """
    counts = METERED_COUNTS if shipped else TOKEN_COUNTS
    requests = spec.processor_requests
    return {
        "apiVersion": f"{_AI}/v1beta1",
        "kind": "GatewayConfig",
        "metadata": {"name": GATEWAY, "namespace": namespace},
        "spec": {
            "globalLLMRequestCosts": [{"metadataKey": key, "type": kind} for key, kind in counts.items()],
            "extProc": {
                "kubernetes": {
                    "env": [{"name": f"OPENINFERENCE_HIDE_{content}", "value": "true"} for content in _HIDDEN_IN_TRACES]
                }
                | ({"resources": {"requests": requests}} if requests else {}),
            },
        },
    }


def gateway(namespace: str, spec: GatewaySpec) -> dict[str, Any]:
    """The listener. `up` waits until Envoy serves it and the load balancer has an address."""
    listener: dict[str, Any] = {
        "name": LISTENER,
        "port": spec.port,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": ROUTES_ALLOWED}}},
    }
    if spec.certificate_secret:
        listener |= {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": spec.certificate_secret}]}}
    return {
        "apiVersion": f"{_GW}/v1",
        "kind": "Gateway",
        "metadata": {
            "name": GATEWAY,
            "namespace": namespace,
            "annotations": {
                f"{_AI}/gateway-config": GATEWAY,
                "pulumi.com/waitFor": "condition=Programmed",
            },
        },
        "spec": {
            "gatewayClassName": CLASS,
            "infrastructure": {"parametersRef": {"group": _EG, "kind": "EnvoyProxy", "name": GATEWAY}},
            "listeners": [listener],
        },
    }


# Namespaces whose routes the gateway serves carry this label.
ROUTES_ALLOWED = {"inference-platform/routes": "allowed"}


def proxy_labels(namespace: str) -> dict[str, str]:
    """Labels that Envoy Gateway gives to the pods of the Gateway of this namespace."""
    return owned_by_gateway(GATEWAY, namespace)


def owned_by_gateway(name: str, namespace: str) -> dict[str, str]:
    """The same of any Gateway."""
    return {
        "app.kubernetes.io/component": "proxy",
        "app.kubernetes.io/managed-by": "envoy-gateway",
        f"{_EG}/owning-gateway-name": name,
        f"{_EG}/owning-gateway-namespace": namespace,
    }


def listener_name(namespace: str) -> str:
    """The listener as Envoy Gateway names it to Envoy."""
    return f"{namespace}/{GATEWAY}/{LISTENER}"


def front_policy(
    proxy_namespace: str, namespace: str, spec: GatewaySpec, scrapers: Sequence[Peer], *, shipped: bool = False
) -> dict[str, Any]:
    """Everyone reaches the listener of the Envoy pods, and these scrapers their metrics."""
    shippers = [SHIPPER_PORT] if shipped else []
    measured = read_by(scrapers, ENVOY_METRICS_PORT, REQUEST_METRICS_PORT, *shippers)
    return allow_ingress(GATEWAY, proxy_namespace, proxy_labels(namespace), [((), [door_port(spec.port)]), *measured])


@dataclass(frozen=True, kw_only=True)
class GatewayArgs:
    """The site's settings and what the front door must outlast and carry."""

    spec: GatewaySpec
    namespace: NamespaceHandle
    needs: list[pulumi.Resource]
    """Definitions and controllers that must be there first."""
    drain_s: int
    body_kib: int
    """Largest request body."""
    proxy_namespace: str | None
    """Where Envoy Gateway puts the Envoy pods: its own namespace. None where that is the cluster's, and not known."""
    scrapers: Sequence[Peer] = ()
    """Pods that may read the metrics of Envoy pods; none where nothing measures."""
    proxy_image: str | None = None
    """Image of Envoy; None for Envoy Gateway's own."""
    names: Sequence[str] = ()
    """In DNS, whose records get its address; none where people write them."""
    rate_limit: Mapping[str, Any] | None = None
    """What limits tenants; None where none has a limit."""
    decided: bool = False
    """Whether a gatekeeper runs."""
    overflows: bool = False
    """Whether another model than theirs may answer requests."""
    budgeted: bool = False
    """Whether it refuses tenants that have spent a month's limit."""
    paged: bool = False
    """Whether it refuses requests that a model has no pages for."""
    suspends: bool = False
    """Whether it refuses keys that are suspended."""
    starts: bool = False
    """Whether a model may have no replica."""
    shipping: Shipping | None = None
    """How Envoy pods' requests get to the ledger; None where none runs."""
    certificates: CertificatesSpec = field(default_factory=CertificatesSpec)
    """Who makes the certificate of `spec.certificate_secret`; cert-manager is among `needs` where it does."""


@dataclass(frozen=True, kw_only=True)
class GatewayHandle:
    """The serving front door."""

    name: str
    namespace: str
    endpoint: pulumi.Output[str]
    """`http(s)://ADDRESS[:PORT]/v1`, OpenAI's base URL."""
    max_parallel_streams: int
    """Requests that one Envoy pod carries at once, over all models."""
    proxies: Peer
    """The Envoy pods, as network policies name them."""
    ready: pulumi.Resource


class Gateway(Component, token="gateway:Gateway"):
    """Class, proxy, listener and traffic policies."""

    def __init__(self, name: str, args: GatewayArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec, space = args.spec, args.namespace.name
        needs = [*args.needs, args.namespace.ready]
        settings = [
            self.child("class", gateway_class(), depends_on=args.needs),
            # A processor gets what this has when its pod starts, for which a change of the proxy is a reason.
            costs := self.child("costs", gateway_config(space, spec, shipped=bool(args.shipping)), depends_on=needs),
            self.child("proxy", self._proxy(args), depends_on=[*needs, costs]),
            self.child("clients", client_traffic_policy(space, spec), depends_on=needs),
            self.child("backends", self._backends(args), depends_on=needs),
            self.child("errors", self._errors(args), depends_on=needs),
        ]
        if args.proxy_namespace is not None:
            shipped = args.shipping is not None
            everybody = front_policy(args.proxy_namespace, space, spec, args.scrapers, shipped=shipped)
            settings.append(self.child("network-policy", everybody, depends_on=needs))
        settings += self._certificate(args, needs)
        listener = self.child("listener", gateway(space, spec), depends_on=settings)
        endpoint = listener.status.apply(lambda status: endpoint_url(status, spec))
        self.handle = GatewayHandle(
            name=GATEWAY,
            namespace=space,
            endpoint=endpoint,
            max_parallel_streams=spec.max_parallel_streams,
            proxies=peer(proxy_labels(space), args.proxy_namespace or ANY_NAMESPACE),
            ready=listener,
        )
        self.finish(endpoint=endpoint)

    def _certificate(self, args: GatewayArgs, needs: Sequence[pulumi.Resource]) -> list[KubeObject]:
        """Nothing where the Secret is made by others."""
        made, secret, space = args.certificates, args.spec.certificate_secret, args.namespace.name
        if made.system == "none" or secret is None:
            return []
        issuers = []
        if made.cluster_issuer is None:
            body = acme_issuer(space, made.acme) if made.acme else private_issuer(space, str(made.ca_secret))
            issuers.append(self.child("issuer", body, depends_on=needs, patience_s=_PATIENCE_S))
        body = certificate(space, secret, made)
        return [self.child("certificate", body, depends_on=[*needs, *issuers], patience_s=_PATIENCE_S)]

    @staticmethod
    def _proxy(args: GatewayArgs) -> dict[str, Any]:
        return envoy_proxy(
            args.namespace.name,
            args.spec,
            drain_s=args.drain_s,
            measured=bool(args.scrapers),
            image=args.proxy_image,
            shipping=args.shipping,
            overflows=args.overflows,
            names=args.names,
        )

    @staticmethod
    def _backends(args: GatewayArgs) -> dict[str, Any]:
        return backend_traffic_policy(
            args.namespace.name, args.spec, body_kib=args.body_kib, rate_limit=args.rate_limit
        )

    @staticmethod
    def _errors(args: GatewayArgs) -> dict[str, Any]:
        return openai_errors(
            args.namespace.name,
            target_gateway(),
            listener=listener_name(args.namespace.name),
            tls=bool(args.spec.certificate_secret),
            limited=args.rate_limit is not None,
            decided=args.decided,
            budgeted=args.budgeted,
            paged=args.paged,
            suspends=args.suspends,
            starts=args.starts,
        )


def endpoint_url(status: dict[str, Any] | None, spec: GatewaySpec) -> str:
    """OpenAI base URL out of a Gateway's status; empty while no address is known."""
    addresses = (status or {}).get("addresses") or []
    if not addresses:
        return ""
    scheme, usual = ("https", 443) if spec.certificate_secret else ("http", 80)
    port = "" if spec.port == usual else f":{spec.port}"
    return f"{scheme}://{addresses[0]['value']}{port}/v1"
