"""An addon whose webhook must let objects in before anything makes them, and a controller with metrics beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from components.network_policies import Peer, allow_ingress, read_by


def answering(configuration: str, addon: str, installed: str) -> dict[str, Any]:
    """A mark on a configuration of the webhook, written when the API server can trust it: before, it refuses objects.

    installed: what must have been installed by then.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {
            "name": configuration,
            "annotations": {
                f"inference-platform/{addon}": installed,
                "pulumi.com/waitFor": "jsonpath={.webhooks[0].clientConfig.caBundle}",
            },
        },
    }


def webhook_policies(
    namespace: str,
    webhook: tuple[Mapping[str, str], int],
    controller: tuple[Mapping[str, str], int],
    scrapers: Sequence[Peer],
) -> list[dict[str, Any]]:
    """The API server, which no label names, reaches the webhook by TLS; scrapers read the controller's metrics.

    webhook, controller: labels of the pods, and the port.
    """
    opened = allow_ingress("webhook", namespace, webhook[0], [((), [webhook[1]])])
    if not scrapers:
        return [opened]
    return [opened, allow_ingress("controller", namespace, controller[0], read_by(scrapers, controller[1]))]
