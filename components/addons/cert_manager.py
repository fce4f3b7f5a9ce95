"""Cert-manager: makes certificates and renews them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.addons.addon import Addon, AddonArgs, AddonHandle, AddonRelease
from components.addons.charts import Chart
from components.network_policies import Peer, allow_ingress, read_by
from components.specs.acme import bracketed
from floor import namespaces

NAMESPACE = namespaces.CERTIFICATES
RELEASE = "cert-manager"
# By the chart: its pods' labels and their ports.
CONTROLLER_PODS = {"app.kubernetes.io/name": "cert-manager", "app.kubernetes.io/component": "controller"}
_WEBHOOK_PODS = {"app.kubernetes.io/name": "webhook", "app.kubernetes.io/component": "webhook"}
METRICS_PORT, _WEBHOOK_PORT = 9402, 10250
_INSTALLED = "inference-platform/cert-manager"
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
    """The API server, which no label names, reaches the webhook by TLS; scrapers read the controller's metrics."""
    webhook = allow_ingress("webhook", NAMESPACE, _WEBHOOK_PODS, [((), [_WEBHOOK_PORT])])
    if not scrapers:
        return [webhook]
    return [webhook, allow_ingress("controller", NAMESPACE, CONTROLLER_PODS, read_by(scrapers, METRICS_PORT))]


def answering(installed: str) -> dict[str, Any]:
    """A mark on the webhook's configuration, written when the API server can trust it: before, it refuses every issuer.

    installed: what must have been installed by then.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {
            "name": f"{RELEASE}-webhook",
            "annotations": {
                _INSTALLED: installed,
                "pulumi.com/waitFor": "jsonpath={.webhooks[0].clientConfig.caBundle}",
            },
        },
    }


@dataclass(frozen=True, kw_only=True)
class CertManagerArgs:
    """The chart, and the definitions that must be there before it."""

    chart: Chart
    needs: Sequence[pulumi.Resource]
    scrapers: Sequence[Peer] = ()
    """Pods that may read its metrics; none where nothing measures."""
    resolvers: Sequence[str] = ()
    """DNS servers that it asks for records of ACME; none for the cluster's own and those of the zone."""


def cert_manager_release(args: CertManagerArgs) -> AddonRelease:
    """The chart with its values."""
    return AddonRelease(name=RELEASE, chart=args.chart, values=cert_manager_values(args.resolvers))


class CertManager(Addon, token="cert_manager:CertManager"):
    """Ready when its webhook lets issuers in. Definitions come from the CRD bundle, never from the chart."""

    def __init__(self, name: str, args: CertManagerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        release = cert_manager_release(args)
        addon = AddonArgs(
            namespace=NAMESPACE,
            pod_security="restricted",
            releases=[release],
            network_policies=network_policies(args.scrapers),
            needs=args.needs,
        )
        super().__init__(name, addon, opts)
        mark = answering(f"{release.name}-{release.chart.version}")
        ready = self.child("answering", mark, depends_on=self.installed, is_patch=True)
        self.handle = AddonHandle(ready=[*self.installed, ready])
        self.finish(namespace=NAMESPACE)
