"""Writers that are expected on our objects besides the program: each with what it writes, and why that is no drift."""

from __future__ import annotations

import re
from dataclasses import dataclass

ANY = ".*"


@dataclass(frozen=True, kw_only=True)
class KnownWriter:
    """Regular expressions for a field's manager, its object's kind and its path as people write it."""

    manager: str = ANY
    kind: str = ANY
    field: str
    why: str


KNOWN_WRITERS = (
    KnownWriter(field=r"status\b.*", why="a controller reports what it found; no program declares a status"),
    KnownWriter(
        field=r"(webhooks\[.*\]|spec\.conversion\.webhook)\.clientConfig\.caBundle",
        why="cert-manager and controllers with certificates of their own put their CA into webhooks",
    ),
    KnownWriter(
        field=r"spec\.template\.metadata\.annotations\[kubectl\.kubernetes\.io/restartedAt\]",
        why="`kubectl rollout restart` and a drain note when they restarted the pods, which runs them as declared",
    ),
    KnownWriter(
        manager="kube-controller-manager",
        kind="Deployment",
        field=r"metadata\.annotations\[deployment\.kubernetes\.io/.*\]",
        why="the Deployment controller numbers revisions",
    ),
    KnownWriter(
        manager="kube-controller-manager",
        field=r"spec\.replicas",
        why="a HorizontalPodAutoscaler sets the count through the `scale` subresource",
    ),
    KnownWriter(
        kind="PersistentVolumeClaim",
        field=r"spec\.volumeName|metadata\.annotations\[(pv|volume|volume\.beta)\.kubernetes\.io/.*\]",
        why="scheduler, controller manager and CSI provisioner bind a claim to its volume",
    ),
    KnownWriter(
        manager=r"(?!kubectl).*",
        field=r"metadata\.finalizers(\[.*\])?",
        why="a controller holds the object until it has cleaned up after it; without that, a deletion leaves parts",
    ),
)


def is_expected(manager: str, kind: str, field: str) -> bool:
    """Whether a known writer writes this field."""
    return any(
        re.fullmatch(known.manager, manager) and re.fullmatch(known.kind, kind) and re.fullmatch(known.field, field)
        for known in KNOWN_WRITERS
    )
