"""Pulls the image of vLLM onto GPU nodes before a replica needs it, and keeps it there while the pod runs.

Ten gigabytes are minutes of a start, which the proof does not count. A replica that comes up first pulls for itself;
those that follow it, and those that move to another node or come with a new one, find the image there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from components.component import Component
from components.holding import holding
from components.namespace import NamespaceHandle
from components.pod_security import pod_security
from components.specs.model_server import ENGINE_IMAGE
from floor import gpu_nodes

# Of 20 nodes five pull at once: a registry serves as many as it can, and a roll of replicas goes on beside it.
_AT_ONCE = "25%"
_USER = 65534


def daemon_set(namespace: str, image: str, gpu_families: Sequence[str]) -> dict[str, Any]:
    """On each node of these families: a container of that image that does nothing."""
    labels = {"app.kubernetes.io/name": ENGINE_IMAGE}
    near = {"key": gpu_nodes.FAMILY_LABEL, "operator": "In", "values": sorted(gpu_families)}
    terms = [{"matchExpressions": [near]}]
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pod_security(_USER),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "tolerations": [{"key": gpu_nodes.TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [holding("hold", image)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        # A node that cannot pull is no reason for `up` to wait: its replicas show it.
        "metadata": {
            "name": ENGINE_IMAGE,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": _AT_ONCE}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


class EngineImages(Component, token="engine_images:EngineImages"):
    """The image of vLLM on each GPU node of a site, which nothing waits for."""

    def __init__(
        self,
        name: str,
        *,
        image: str,
        gpu_families: Sequence[str],
        namespace: NamespaceHandle,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        self.child("nodes", daemon_set(namespace.name, image, gpu_families), depends_on=[namespace.ready])
        self.finish(name=name)
