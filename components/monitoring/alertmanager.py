"""Alertmanager: groups alerts, and sends them where the site's Secret states."""

from __future__ import annotations

from typing import Any

from components.monitoring.operator import API
from components.monitoring.pods import NAME_LABEL, POD_SECURITY, apart, release_of, volume_claim
from components.placing import Placing, placed
from components.specs.monitoring import ALERTMANAGER_VOLUME_GIB

NAME = "inference"
LABELS = {NAME_LABEL: "alertmanager", "alertmanager": NAME}
"""Labels that the operator gives to its pods."""
SERVICE, PORT_NAME, PORT = "alertmanager-operated", "web", 9093
"""The Service that the operator makes for it."""
MESH_PORT = 9094
"""Where its pods reach each other, by TCP and UDP."""
_CONFIGURATION = "alertmanager.yaml"
_RESOURCES = {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}


def alertmanager(
    namespace: str, *, copies: int = 1, image: str, secret: str | None, storage_class: str, placing: Placing
) -> dict[str, Any]:
    """One Alertmanager, each of its pods with a volume for silences and for what it has sent.

    copies: pods, which exchange what they have sent.

    secret: holds its configuration, and `up` waits until it does; without one the operator makes one that sends
    nothing.
    """
    return {
        "apiVersion": API,
        "kind": "Alertmanager",
        "metadata": {
            "name": NAME,
            "namespace": namespace,
            "annotations": {"pulumi.com/waitFor": "condition=Available"},
        },
        "spec": {
            **apart(LABELS, copies),
            "image": image,
            "version": release_of(image),
            **(_configured_by(secret) if secret else {}),
            "retention": "120h",
            "logFormat": "json",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **volume_claim(storage_class, ALERTMANAGER_VOLUME_GIB),
            "resources": _RESOURCES,
            "securityContext": dict(POD_SECURITY),
            **placed(placing),
        },
    }


def _configured_by(secret: str) -> dict[str, Any]:
    """The Secret for the operator, and mounted once more, so that no pod starts before the Secret has the key.

    The operator takes a configuration that sends nothing where either is not there, and reports no error (release
    0.85, pkg/alertmanager/operator.go, loadConfigurationFromSecret). A kubelet starts no container until then.
    """
    name = "site-configuration"
    return {
        "configSecret": secret,
        "volumes": [
            {"name": name, "secret": {"secretName": secret, "items": [{"key": _CONFIGURATION, "path": _CONFIGURATION}]}}
        ],
        "volumeMounts": [{"name": name, "mountPath": f"/etc/alertmanager/{name}", "readOnly": True}],
    }
