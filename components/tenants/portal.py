"""The pages on which people order models: two pods, and a Gateway of their own, apart from that of the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.gateway.envoy_names import unprivileged
from components.gateway.gateway import CLASS, ENVOY_METRICS_PORT, load_balancer, owned_by_gateway
from components.gateway.traffic_policies import target_gateway, target_route, traffic_policy
from components.minted import mint, minted
from components.namespace import NamespaceHandle
from components.network_policies import ANY_NAMESPACE, Peer, allow_ingress, peer, read_by
from components.placing import budget, spread
from components.specs.gateway import GatewaySpec
from components.specs.portal import PortalSpec
from components.tenants.callers import version_of
from components.tenants.directory import DIRECTORY_URL, shared_secrets
from components.tenants.ledger import LedgerAccess
from components.tenants.pods import ServicePods, opaque_secret, service, two_pods
from services.directory import variables as of_directory
from services.portal import variables

PORTAL = variables.SERVICE
PORTAL_PODS = {"app.kubernetes.io/name": PORTAL}
_EG, _GW = "gateway.envoyproxy.io/v1alpha1", "gateway.networking.k8s.io/v1"
_CATALOGUE, _LOGIN, _SESSION, _DIRECTORY, _LEDGER, _TRUST = (
    f"/etc/{name}" for name in ("catalogue", "login", "session", "directory", "ledger", "trust")
)
_SESSION_SECRET, _SESSION_KEY = "portal-session", "key"
# Estimates. A page is up to six requests of a browser, and behind some load balancers everyone has a node's address.
_REQUESTS_PER_S = 50
# Of each Envoy pod: a browser has up to six, and each may take 64 KiB for what it sends and gets.
_CONNECTIONS = 2000
# The portal refuses larger ones too, and those of unknown length, which Envoy makes known.
_BODY = "128Ki"


def catalogue_map(namespace: str, catalogue: str, ca: str | None) -> dict[str, Any]:
    """What the pages show of the site, and whom they trust."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": PORTAL, "namespace": namespace},
        "data": {"catalogue.json": catalogue, **({"ca.crt": ca} if ca else {})},
    }


def deployment(
    namespace: str,
    spec: PortalSpec,
    *,
    image: str,
    endpoint: pulumi.Input[str],
    ledger: LedgerAccess | None,
    version: str,
    trusted: str | None = None,
) -> dict[str, Any]:
    """endpoint: OpenAI's base URL. version: of what the pods read when they start.

    trusted: Secret whose `ca.crt` is of the gateway's certificate; the site's own `ca` takes its place.
    """
    files = {
        _CATALOGUE: {
            "name": "catalogue",
            "configMap": {"name": PORTAL, "items": [{"key": "catalogue.json", "path": "catalogue.json"}]},
        },
        _LOGIN: {"name": "login", "secret": {"secretName": spec.client_secret, "defaultMode": 0o440}},
        _SESSION: {"name": "session", "secret": {"secretName": _SESSION_SECRET, "defaultMode": 0o440}},
        _DIRECTORY: shared_secrets(of_directory.OPERATOR_KEY) | {"name": "directory"},
    }
    arguments: list[pulumi.Input[str]] = [
        f"--port={variables.DEFAULT_PORT}",
        f"--public-url={spec.url}",
        f"--issuer={spec.issuer}",
        f"--client-id={spec.client_id}",
        f"--groups-claim={spec.groups_claim}",
        f"--client-secret-file={_LOGIN}/{variables.CLIENT_SECRET_KEY}",
        f"--session-secret-file={_SESSION}/{_SESSION_KEY}",
        f"--catalogue-file={_CATALOGUE}/catalogue.json",
        # The portal's own templates have OpenAI's path behind it.
        *(pulumi.Output.concat(option, _without_path(endpoint)) for option in ("--endpoint=", "--gateway=")),
        f"--directory={DIRECTORY_URL.format(namespace=namespace)}",
        f"--directory-token-file={_DIRECTORY}/{of_directory.OPERATOR_KEY}",
    ]
    if ledger:
        arguments += [f"--ledger={ledger.url}", f"--ledger-token-file={_LEDGER}/{ledger.key}"]
        files |= {_LEDGER: ledger.volume}
    if spec.ca or trusted:
        arguments.append(f"--ca-file={_TRUST}/ca.crt")
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        own, gateways = {"name": PORTAL, "items": items}, {"secretName": trusted, "items": items}
        files |= {_TRUST: {"name": "trust", **({"configMap": own} if spec.ca else {"secret": gateways})}}
    pods = ServicePods(
        name=PORTAL,
        image=image,
        arguments=arguments,
        ports={"http": variables.DEFAULT_PORT},
        asked="http",
        ready={"periodSeconds": 5, "timeoutSeconds": 5},
        memory="128Mi",
        volumes=files,
        # It is ready with what it shows, and nothing waits for it.
        annotations={"pulumi.com/skipAwait": "true"},
        versions={"catalogue": version},
    )
    return two_pods(namespace, pods)


def _without_path(endpoint: pulumi.Input[str]) -> pulumi.Output[str]:
    """Where the API is, without OpenAI's `/v1`."""
    return pulumi.Output.from_input(endpoint).apply(lambda url: url.rstrip("/").removesuffix("/v1"))


def envoy_proxy(
    namespace: str, spec: PortalSpec, models: GatewaySpec, image: str | None, names: Sequence[str] = ()
) -> dict[str, Any]:
    """Shape of its Envoy pods.

    models: the gateway of the models, whose load balancer is announced in the same way. image: of Envoy; None for Envoy
    Gateway's own. names: whose records get the address.
    """
    return {
        "apiVersion": _EG,
        "kind": "EnvoyProxy",
        "metadata": {"name": PORTAL, "namespace": namespace},
        "spec": {
            "provider": {
                "type": "Kubernetes",
                "kubernetes": {
                    "envoyDeployment": {
                        "replicas": 2,
                        "pod": spread(owned_by_gateway(PORTAL, namespace)),
                        **({"container": {"image": image}} if image else {}),
                    },
                    "envoyService": load_balancer(models, spec.address, names),
                    "envoyPDB": {"maxUnavailable": 1},
                },
            }
        },
    }


def gateway(namespace: str, spec: PortalSpec) -> dict[str, Any]:
    """The listener for browsers, for routes of this namespace only."""
    listener: dict[str, Any] = {
        "name": PORTAL,
        "hostname": spec.hostname,
        "port": spec.port,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "Same"}},
    }
    if spec.certificate_secret:
        listener |= {"protocol": "HTTPS", "tls": {"certificateRefs": [{"name": spec.certificate_secret}]}}
    return {
        "apiVersion": _GW,
        "kind": "Gateway",
        "metadata": {
            "name": PORTAL,
            "namespace": namespace,
            "annotations": {"pulumi.com/waitFor": "condition=Programmed"},
        },
        "spec": {
            "gatewayClassName": CLASS,
            "infrastructure": {"parametersRef": {"group": _EG.partition("/")[0], "kind": "EnvoyProxy", "name": PORTAL}},
            "listeners": [listener],
        },
    }


def route(namespace: str, spec: PortalSpec) -> dict[str, Any]:
    """All of its paths but its metrics; the playground's answers are streams of minutes."""
    away = {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/"}, "statusCode": 302}
    return {
        "apiVersion": _GW,
        "kind": "HTTPRoute",
        "metadata": {"name": PORTAL, "namespace": namespace},
        "spec": {
            "parentRefs": [{"name": PORTAL}],
            "hostnames": [spec.hostname],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/metrics"}}],
                    "filters": [{"type": "RequestRedirect", "requestRedirect": away}],
                },
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                    "backendRefs": [{"name": PORTAL, "port": variables.DEFAULT_PORT}],
                    "timeouts": {"request": "600s"},
                },
            ],
        },
    }


def client_policy(namespace: str) -> dict[str, Any]:
    """How long and how often anyone may hold a connection. Sizes of headers are Envoy's own: no field has them."""
    settings = {
        "connection": {"connectionLimit": {"value": _CONNECTIONS}},
        "timeout": {"http": {"requestReceivedTimeout": "30s", "idleTimeout": "300s"}},
    }
    return traffic_policy("ClientTrafficPolicy", namespace, target_gateway(PORTAL), settings)


def request_policy(namespace: str) -> dict[str, Any]:
    """How much one address may ask of an Envoy pod: 429 beyond it. Bodies are whole before a pod of the portal sees
    them."""
    rules = [
        {
            "clientSelectors": [{"sourceCIDR": {"type": "Distinct", "value": everyone}}],
            "limit": {"requests": _REQUESTS_PER_S, "unit": "Second"},
        }
        for everyone in ("0.0.0.0/0", "::/0")
    ]
    settings = {"requestBuffer": {"limit": _BODY}, "rateLimit": {"type": "Local", "local": {"rules": rules}}}
    return traffic_policy("BackendTrafficPolicy", namespace, target_route(PORTAL), settings)


def proxy_policy(proxy_namespace: str, namespace: str, spec: PortalSpec, scrapers: Sequence[Peer]) -> dict[str, Any]:
    """Everyone reaches the listener of its Envoy pods, and these scrapers their metrics."""
    entry = [((), [unprivileged(spec.port)]), *read_by(scrapers, ENVOY_METRICS_PORT)]
    return allow_ingress(PORTAL, proxy_namespace, owned_by_gateway(PORTAL, namespace), entry)


@dataclass(frozen=True, kw_only=True)
class PortalArgs:
    """What it shows, and whom it asks."""

    spec: PortalSpec
    models: GatewaySpec
    """The gateway of the models."""
    catalogue: str
    """What the pages show of the site, JSON."""
    image: str
    namespace: NamespaceHandle
    endpoint: pulumi.Input[str]
    """The gateway's, for where the site names none."""
    ledger: LedgerAccess | None
    proxy_namespace: str | None
    """Where Envoy Gateway puts the Envoy pods; None where that is the cluster's, and not known."""
    proxy_image: str | None
    trusted: str | None
    """Secret with the CA of the gateway's certificate as `ca.crt`; None for a public one."""
    names: Sequence[str]
    """In DNS, whose records get its address."""
    scrapers: Sequence[Peer]
    needs: Sequence[pulumi.Resource]


class Portal(Component, token="portal:Portal"):
    """Pods, what they know, and the way of browsers to them."""

    def __init__(self, name: str, args: PortalArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec, space = args.spec, args.namespace.name
        needs = [args.namespace.ready, *args.needs]
        # Signs the cookies of people who are logged in.
        # Another one costs them another login, and no more: it need not outlive a lost state.
        key = minted(self, "session", mint("portal-session"))
        known = [
            self.child("session", opaque_secret(space, _SESSION_SECRET, {_SESSION_KEY: key}), depends_on=needs),
            self.child("catalogue", catalogue_map(space, args.catalogue, spec.ca), depends_on=needs),
        ]
        pods = deployment(
            space,
            spec,
            image=args.image,
            endpoint=spec.endpoint or args.endpoint,
            ledger=args.ledger,
            version=version_of(f"{args.catalogue}{spec.ca}"),
            trusted=args.trusted,
        )
        proxies = peer(owned_by_gateway(PORTAL, space), args.proxy_namespace or ANY_NAMESPACE)
        entry = [([proxies], [variables.DEFAULT_PORT]), *read_by(args.scrapers, variables.DEFAULT_PORT)]
        self.child("service", service(space, PORTAL, variables.DEFAULT_PORT), depends_on=needs)
        self.child("network-policy", allow_ingress(PORTAL, space, PORTAL_PODS, entry), depends_on=needs)
        self.child("budget", budget(PORTAL, space, PORTAL_PODS), depends_on=needs)
        self.child("pods", pods, depends_on=[*needs, *known])
        proxy = envoy_proxy(space, spec, args.models, args.proxy_image, args.names)
        settings = [
            self.child("proxy", proxy, depends_on=needs),
            self.child("clients", client_policy(space), depends_on=needs),
            self.child("requests", request_policy(space), depends_on=needs),
        ]
        if args.proxy_namespace is not None:
            everybody = proxy_policy(args.proxy_namespace, space, spec, args.scrapers)
            settings.append(self.child("proxy-network-policy", everybody, depends_on=needs))
        listener = self.child("listener", gateway(space, spec), depends_on=settings)
        self.child("route", route(space, spec), depends_on=[*needs, listener])
        self.finish(url=spec.url)
