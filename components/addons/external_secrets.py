"""External-secrets: fills Secrets out of a store of keys, and again when the store has others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.addons.addon import Addon, AddonArgs, AddonHandle, AddonRelease
from components.addons.charts import Chart
from components.network_policies import Peer, allow_ingress, read_by
from floor import namespaces

NAMESPACE = namespaces.SECRETS
RELEASE = "external-secrets"
# By the chart: its pods' labels, their ports, and the configurations of its webhook, whose names it fixes.
CONTROLLER_PODS = {"app.kubernetes.io/name": "external-secrets"}
_WEBHOOK_PODS = {"app.kubernetes.io/name": "external-secrets-webhook"}
METRICS_PORT, _WEBHOOK_PORT = 8080, 10250
_VALIDATED = {"stores": "secretstore-validate", "secrets": "externalsecret-validate"}
_INSTALLED = "inference-platform/external-secrets"
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
    """The API server, which no label names, reaches the webhook by TLS; scrapers read the controller's metrics."""
    webhook = allow_ingress("webhook", NAMESPACE, _WEBHOOK_PODS, [((), [_WEBHOOK_PORT])])
    if not scrapers:
        return [webhook]
    return [webhook, allow_ingress("controller", NAMESPACE, CONTROLLER_PODS, read_by(scrapers, METRICS_PORT))]


def answering(configuration: str, installed: str) -> dict[str, Any]:
    """A mark on a configuration of the webhook, written when the API server can trust it: before, it refuses stores.

    installed: what must have been installed by then.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {
            "name": configuration,
            "annotations": {
                _INSTALLED: installed,
                "pulumi.com/waitFor": "jsonpath={.webhooks[0].clientConfig.caBundle}",
            },
        },
    }


@dataclass(frozen=True, kw_only=True)
class ExternalSecretsArgs:
    """The chart, and who may read what it measures."""

    chart: Chart
    scrapers: Sequence[Peer] = ()
    """Pods that may read its metrics; none where nothing measures."""


def external_secrets_release(args: ExternalSecretsArgs) -> AddonRelease:
    """The chart with its values."""
    return AddonRelease(name=RELEASE, chart=args.chart, values=external_secrets_values())


class ExternalSecrets(Addon, token="external_secrets:ExternalSecrets"):
    """Ready when its webhook lets stores in. Its definitions come and go with the chart."""

    def __init__(self, name: str, args: ExternalSecretsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        release = external_secrets_release(args)
        addon = AddonArgs(
            namespace=NAMESPACE,
            pod_security="restricted",
            releases=[release],
            network_policies=network_policies(args.scrapers),
        )
        super().__init__(name, addon, opts)
        installed = f"{release.name}-{release.chart.version}"
        marks = [
            self.child(f"answering-{what}", answering(of, installed), depends_on=self.installed, is_patch=True)
            for what, of in _VALIDATED.items()
        ]
        self.handle = AddonHandle(ready=[*self.installed, *marks])
        self.finish(namespace=NAMESPACE)
