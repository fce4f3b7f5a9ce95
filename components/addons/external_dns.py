"""external-dns: writes the names of the gateway and the portal into a zone, with the addresses of their Services.

It reads Services of Envoy Gateway's namespace alone, and of these the annotation of this program. It adds and changes
records and deletes none; beside each is a TXT record with the site's name, and a record of another site stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.addons.addon import Addon, AddonChart, AddonComponent, AddonContent, AddonRelease, AddonSite
from components.network_policies import Peer, allow_ingress, read_by
from components.scrape_target import ScrapeTarget
from components.specs.dns import ANNOTATION_PREFIX, TSIG_SECRET_KEY, DnsServerSpec, DnsSpec, host_and_port
from floor import namespaces

NAMESPACE = namespaces.DNS
RELEASE = "external-dns"
PODS = {"app.kubernetes.io/name": RELEASE}
_PORT = 7979
# No figure of a run: a client, and caches of a few Services.
_SMALL = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}


def external_dns_values(server: DnsServerSpec, site: str) -> dict[str, Any]:
    """Values of its chart. site: whose name marks its records."""
    host, port = host_and_port(server.nameserver)
    key = {"name": server.tsig_secret, "key": TSIG_SECRET_KEY}
    # It finds the zone of a name by its end, which has no dot, and sends what has none to the root.
    zones = [zone.rstrip(".") for zone in server.zones]
    return {
        "provider": {"name": "rfc2136"},
        "sources": ["service"],
        "namespaced": True,
        "sourceNamespace": namespaces.ENVOY_GATEWAY,
        "annotationPrefix": ANNOTATION_PREFIX,
        "domainFilters": zones,
        # A record that is no longer wanted is a person's to delete: a Gateway that is replaced costs no name.
        "policy": "upsert-only",
        "registry": "txt",
        "txtOwnerId": site,
        "resources": _SMALL,
        "logFormat": "json",
        # By a name that external-dns has for each of its flags.
        "env": [{"name": "EXTERNAL_DNS_RFC2136_TSIG_SECRET", "valueFrom": {"secretKeyRef": key}}],
        "extraArgs": {
            # Of other types it would watch pods and nodes too.
            "service-type-filter": "LoadBalancer",
            "rfc2136-host": host,
            "rfc2136-port": port,
            "rfc2136-zone": zones,
            "rfc2136-tsig-keyname": server.tsig_key,
            "rfc2136-tsig-secret-alg": server.tsig_algorithm,
            # Without a transfer it knows no record that is there, and so no owner: `DnsRecordsUnseen` fires.
            "rfc2136-tsig-axfr": True,
        },
    }


def network_policies(scrapers: Sequence[Peer] = ()) -> list[dict[str, Any]]:
    """Only what measures reaches it."""
    return [allow_ingress(RELEASE, NAMESPACE, PODS, read_by(scrapers, _PORT))]


def content(site: AddonSite) -> AddonContent:
    """Works when Helm has seen its pod ready; whether records are written, its alert shows."""
    server = site.spec(DnsSpec).rfc2136
    if server is None:
        raise ValueError("external-dns: the site names no server")
    values = external_dns_values(server, site.name)
    return AddonContent(
        releases=[AddonRelease(name=RELEASE, chart=site.charts["external_dns"], values=values)],
        network_policies=network_policies(site.scrapers),
    )


EXTERNAL_DNS = Addon(
    key="external_dns",
    switch="dns.system",
    on="external_dns",
    namespace=NAMESPACE,
    section="dns",
    charts=(
        AddonChart(
            name="external_dns",
            release=RELEASE,
            uninstalled="records stay as they are, and no new address gets into them",
            upgraded="its pod restarts; records stay",
        ),
    ),
    targets=(ScrapeTarget(name="dns-records", job="dns-records", namespace=NAMESPACE, pods=PODS, port=_PORT),),
    component=AddonComponent(
        name="dns",
        resource_type="external_dns:ExternalDns",
        pod_security="restricted",
        content=content,
        # Its chart makes a Role in their namespace.
        needs=("gateway-controllers",),
        reads_secrets=True,
    ),
)
