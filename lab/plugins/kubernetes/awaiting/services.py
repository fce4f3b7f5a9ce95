"""Readiness that depends on other objects: endpoints of Services and Ingresses, storage classes of claims."""

from __future__ import annotations

import os
import time
from typing import Final

from lab.plugins.kubernetes.awaiting.readiness import READY, Readiness, first_address, section
from lab.plugins.kubernetes.cluster import Cluster
from lab.plugins.kubernetes.errors import ApiError
from lab.plugins.kubernetes.objects import GroupVersionKind, name_of, namespace_of
from lab.plugins.kubernetes.properties import Tree

_SLICES: Final = GroupVersionKind("discovery.k8s.io", "v1", "EndpointSlice")
_STORAGE_CLASSES: Final = GroupVersionKind("storage.k8s.io", "v1", "StorageClass")
_SERVICES: Final = GroupVersionKind("", "v1", "Service")

# After a change of the endpoints the official provider waits this long for stragglers.
SETTLE_S: Final = 10.0
SETTLE_VARIABLE: Final = "LAB_ENDPOINTS_SETTLE_S"

_NO_PODS: Final = "no Pod behind the Service is ready, or its .spec.selector fits the labels of none"
_NO_ADDRESS: Final = "the Service got no load balancer address: nothing in the cluster hands them out, or none is free"


def settle_s() -> float:
    """Seconds without a change after which endpoints count as settled."""
    return float(os.environ.get(SETTLE_VARIABLE) or SETTLE_S)


def wants_endpoints(service: Tree) -> bool:
    """Whether a Service sends traffic to Pods that it selects: not headless, not external, not without a selector."""
    spec = section(service, "spec")
    return bool(spec.get("selector")) and spec.get("type") != "ExternalName" and spec.get("clusterIP") != "None"


def count_endpoints(slices: list[Tree]) -> tuple[int, int]:
    """Ready endpoints, and those that are on their way; endpoints of Pods that end count as neither."""
    ready = pending = 0
    for item in slices:
        for endpoint in item.get("endpoints") or []:
            conditions = section(endpoint, "conditions")
            if conditions.get("ready", True):
                ready += 1
            elif not conditions.get("terminating"):
                pending += 1
    return ready, pending


class ServiceProbe:
    """Ready when its endpoints have settled, none of them pending, and a load balancer has its address."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: tuple[int, int] | None = None
        self._changed_at = time.monotonic()
        self.settle_s = settle_s()

    def __call__(self, service: Tree) -> Readiness:
        spec = section(service, "spec")
        addressed = spec.get("type") != "LoadBalancer" or first_address(service) is not None
        if not wants_endpoints(service):
            return READY if addressed else Readiness.not_yet("waiting for a load balancer address", [_NO_ADDRESS])
        slices = self._cluster.items_of(
            _SLICES, namespace_of(service), labels=f"kubernetes.io/service-name={name_of(service)}"
        )
        counts = count_endpoints(slices)
        if counts != self._seen:
            self._seen, self._changed_at = counts, time.monotonic()
        ready, pending = counts
        settled = time.monotonic() - self._changed_at >= self.settle_s
        if addressed and settled and not pending:
            return READY
        reasons = ([] if ready else [_NO_PODS]) + ([] if addressed else [_NO_ADDRESS])
        if settled and ready:
            return Readiness.not_yet("waiting for a load balancer address", reasons)
        return Readiness.not_yet(f"waiting for endpoints: {ready} ready, {pending} to come", reasons)


class IngressProbe:
    """Ready when it has an address and each Service that it names exists."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.settle_s = 0.0

    def __call__(self, ingress: Tree) -> Readiness:
        missing = [name for name in sorted(_backends(ingress)) if not self._exists(name, namespace_of(ingress))]
        reasons = [f'Ingress has a path to Service "{name}", which does not exist' for name in missing]
        if first_address(ingress) is None:
            reasons.append("the Ingress has no address: no controller wrote one into its status")
        return Readiness.not_yet("waiting for the Ingress", reasons) if reasons else READY

    def _exists(self, name: str, namespace: str) -> bool:
        try:
            self._cluster.get(_SERVICES, name, namespace)
        except ApiError as error:
            if error.not_found:
                return False
            raise
        return True


def _backends(ingress: Tree) -> set[str]:
    names = set()
    for rule in section(ingress, "spec").get("rules") or []:
        for path in section(rule, "http").get("paths") or []:
            name = section(section(path, "backend"), "service").get("name")
            if name:
                names.add(str(name))
    return names


class ClaimProbe:
    """Ready when bound; a new claim whose class waits for its first consumer is ready while it is pending."""

    def __init__(self, cluster: Cluster, *, created: bool) -> None:
        self._cluster = cluster
        self._created = created
        self._mode = ""

    def __call__(self, claim: Tree) -> Readiness:
        phase = section(claim, "status").get("phase")
        if phase == "Bound":
            return READY
        if not self._mode:
            self._mode = self._binding_mode(claim)
        if self._mode == "WaitForFirstConsumer" and phase == "Pending":
            return READY
        message = f"waiting for the claim to be bound (it is {phase or 'new'})"
        return Readiness.not_yet(message)

    def _binding_mode(self, claim: Tree) -> str:
        name = section(claim, "spec").get("storageClassName")
        if not name:
            return ""
        try:
            storage_class = self._cluster.get(_STORAGE_CLASSES, str(name))
        except ApiError:
            return ""
        return str(storage_class.get("volumeBindingMode", ""))
