"""Cert-manager: makes certificates and renews them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonObject,
    AddonRelease,
    AddonSite,
)
from components.addons.webhooks import answering, webhook_policies
from components.network_policies import Peer
from components.scrape_target import ScrapeTarget
from components.specs.acme import bracketed
from components.specs.certificates import CertificatesSpec
from floor import namespaces

NAMESPACE = namespaces.CERTIFICATES
RELEASE = "cert-manager"
# By the chart: its pods' labels and their ports.
_CONTROLLER_PODS = {"app.kubernetes.io/name": "cert-manager", "app.kubernetes.io/component": "controller"}
_WEBHOOK_PODS = {"app.kubernetes.io/name": "webhook", "app.kubernetes.io/component": "webhook"}
_METRICS_PORT, _WEBHOOK_PORT = 9402, 10250
# The lab's take 65 to 78 MiB each; the limit is for a cluster with other certificates too.
_SMALL = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}


def cert_manager_values(resolvers: Sequence[str] = ()) -> dict[str, Any]:
    """Values of cert-manager's chart. resolvers: the DNS servers that alone are asked whether a record is there."""
    asked = {"dns01RecursiveNameservers": ",".join(map(with_port, resolvers)), "dns01RecursiveNameserversOnly": True}
    return {
        **(asked if resolvers else {}),
        # They come with the CRD bundle.
        "crds": {"enabled": False},
        # The chart's own is kube-system.
        "global": {"leaderElection": {"namespace": NAMESPACE}},
        # A Job that waits for what the mark on the webhook's configuration waits for.
        "startupapicheck": {"enabled": False},
        "resources": _SMALL,
        "webhook": {"resources": _SMALL},
        "cainjector": {"resources": _SMALL},
    }


def with_port(server: str) -> str:
    """A DNS server by its address, as cert-manager reads it: HOST:PORT."""
    host = bracketed(server)
    return f"{host}:53" if host.endswith("]") or ":" not in host else host


def network_policies(scrapers: Sequence[Peer] = ()) -> list[dict[str, Any]]:
    """Who reaches its pods."""
    return webhook_policies(NAMESPACE, (_WEBHOOK_PODS, _WEBHOOK_PORT), (_CONTROLLER_PODS, _METRICS_PORT), scrapers)


def content(site: AddonSite) -> AddonContent:
    """Works when its webhook lets issuers in. Definitions come from the CRD bundle, never from the chart."""
    acme, chart = site.spec(CertificatesSpec).acme, site.charts["cert_manager"]
    values = cert_manager_values(acme.resolvers if acme else ())
    return AddonContent(
        releases=[AddonRelease(name=RELEASE, chart=chart, values=values)],
        network_policies=network_policies(site.scrapers),
        objects=[
            AddonObject(
                suffix="answering",
                body=answering(f"{RELEASE}-webhook", RELEASE, f"{RELEASE}-{chart.version}"),
                is_patch=True,
            )
        ],
    )


CERT_MANAGER = Addon(
    key="cert_manager",
    switch="certificates.system",
    on="cert_manager",
    section="certificates",
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="cert_manager",
            release=RELEASE,
            uninstalled="certificates stay as they are, and nothing renews them",
            upgraded="its pods restart; certificates stay, and the next renewal waits for them",
        ),
    ),
    targets=(
        # Its samples are about Certificates of any namespace.
        ScrapeTarget(
            name="certificates",
            job="certificates",
            namespace=NAMESPACE,
            pods=_CONTROLLER_PODS,
            port=_METRICS_PORT,
            own_labels_win=True,
        ),
    ),
    component=AddonComponent(
        name="certificates",
        resource_type="cert_manager:CertManager",
        pod_security="restricted",
        content=content,
        needs=("crds",),
        gives="certificates",
    ),
)
