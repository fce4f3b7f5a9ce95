"""A namespace: its pod security, and a policy that denies ingress unless another policy allows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.network_policies import deny_ingress
from floor.namespaces import PodSecurity


def namespace(name: str, pod_security: PodSecurity, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Namespace whose admission enforces `pod_security` and warns about everything short of `restricted`."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                "pod-security.kubernetes.io/enforce": pod_security,
                "pod-security.kubernetes.io/warn": "restricted",
                "pod-security.kubernetes.io/audit": "restricted",
                **(labels or {}),
            },
        },
    }


@dataclass(frozen=True, kw_only=True)
class NamespaceHandle:
    """A namespace to put objects into; wait for `ready` before doing so."""

    name: str
    ready: pulumi.Resource


class Namespace(Component, token="namespace:Namespace"):
    """One namespace, and the policy that denies its pods' ingress."""

    def __init__(
        self,
        name: str,
        *,
        pod_security: PodSecurity,
        labels: Mapping[str, str] | None = None,
        needs: Sequence[pulumi.Resource] = (),
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """needs: what `destroy` deletes after it, such as the storage of its claims."""
        super().__init__(name, opts)
        made = self.child("namespace", namespace(name, pod_security, labels), depends_on=needs)
        self.child("deny-ingress", deny_ingress(name), depends_on=[made])
        self.handle = NamespaceHandle(name=name, ready=made)
        self.finish(name=name)
