"""External-secrets: fills Secrets out of a store of keys, and again when the store has others."""

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
from floor import namespaces

NAMESPACE = namespaces.SECRETS
RELEASE = "external-secrets"
# By the chart: its pods' labels, their ports, and the configurations of its webhook, whose names it fixes.
_CONTROLLER_PODS = {"app.kubernetes.io/name": "external-secrets"}
_WEBHOOK_PODS = {"app.kubernetes.io/name": "external-secrets-webhook"}
_METRICS_PORT, _WEBHOOK_PORT = 8080, 10250
_VALIDATED = {"stores": "secretstore-validate", "secrets": "externalsecret-validate"}
# No figure of a run: a client and caches of a few objects, as cert-manager's, which takes 65 to 78 MiB.
_SMALL = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}}


def external_secrets_values() -> dict[str, Any]:
    """Values of external-secrets' chart: ExternalSecrets and ClusterSecretStores, and nothing that writes to a store
    or to objects other than Secrets."""
    unused = ("ClusterExternalSecret", "ClusterPushSecret", "PushSecret", "ClusterGenerator")
    return {
        "installCRDs": True,
        "crds": {f"create{kind}": False for kind in unused},
        **{f"process{kind}": False for kind in unused},
        # An ExternalSecret reads whatever the store lets the platform read, the keys of other namespaces too.
        "rbac": {"aggregateToEdit": False, "aggregateToAdmin": False},
        "resources": _SMALL,
        "webhook": {"resources": _SMALL},
        "certController": {"resources": _SMALL},
    }


def network_policies(scrapers: Sequence[Peer] = ()) -> list[dict[str, Any]]:
    """Who reaches its pods."""
    return webhook_policies(NAMESPACE, (_WEBHOOK_PODS, _WEBHOOK_PORT), (_CONTROLLER_PODS, _METRICS_PORT), scrapers)


def content(site: AddonSite) -> AddonContent:
    """Works when its webhook lets stores in. Its definitions come and go with the chart."""
    chart = site.charts["external_secrets"]
    installed = f"{RELEASE}-{chart.version}"
    return AddonContent(
        releases=[AddonRelease(name=RELEASE, chart=chart, values=external_secrets_values())],
        network_policies=network_policies(site.scrapers),
        objects=[
            AddonObject(suffix=f"answering-{what}", body=answering(of, RELEASE, installed), is_patch=True)
            for what, of in _VALIDATED.items()
        ],
    )


EXTERNAL_SECRETS = Addon(
    key="external_secrets",
    switch="secrets.system",
    on="external_secrets",
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="external_secrets",
            release=RELEASE,
            uninstalled="its definitions go with it, every ExternalSecret of the cluster with them, and the Secrets "
            "that those filled",
            upgraded="its pods restart; Secrets keep their keys, and the next refresh waits for them",
        ),
    ),
    targets=(
        # Its samples are about ExternalSecrets of any namespace.
        ScrapeTarget(
            name="secrets",
            job="secrets",
            namespace=NAMESPACE,
            pods=_CONTROLLER_PODS,
            port=_METRICS_PORT,
            own_labels_win=True,
        ),
    ),
    component=AddonComponent(
        name="secrets",
        resource_type="external_secrets:ExternalSecrets",
        pod_security="restricted",
        content=content,
        gives="secrets",
    ),
)
