"""Helm's releases as it keeps them in a cluster: a Secret for each revision, its record packed in it.

A record holds all values of a chart, so nothing but names and versions leaves this module.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SECRET_TYPE = "helm.sh/release.v1"  # noqa: S105 - a type
DEPLOYED = "deployed"


class UnreadableReleaseError(Exception):
    """A Secret of Helm's type that holds no record; names the Secret."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One revision of a release."""

    name: str
    namespace: str
    number: int
    status: str
    """As Helm has it: deployed, superseded, failed, uninstalling, or pending-install, -upgrade or -rollback."""
    chart: str
    chart_version: str
    app_version: str


@dataclass(frozen=True, kw_only=True)
class HelmRelease:
    """A release by its newest revision, and by the one that runs."""

    newest: Revision
    deployed: Revision | None
    """None where no revision was ever installed to its end, or it is being removed."""

    @property
    def label(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.newest.namespace}/{self.newest.name}"

    @property
    def in_order(self) -> bool:
        """Whether Helm's last work on it came to its end."""
        return self.newest.status == DEPLOYED


def releases(secrets: Iterable[Mapping[str, Any]]) -> list[HelmRelease]:
    """Every release of these Secrets, by namespace and name; others than Helm's are left out.

    Raises UnreadableReleaseError.
    """
    by_release: dict[tuple[str, str], list[Revision]] = {}
    for secret in secrets:
        if secret.get("type") == SECRET_TYPE:
            revision = _revision(secret)
            by_release.setdefault((revision.namespace, revision.name), []).append(revision)
    return [_release(sorted(revisions, key=lambda of: of.number)) for _, revisions in sorted(by_release.items())]


def _release(revisions: list[Revision]) -> HelmRelease:
    deployed = [revision for revision in revisions if revision.status == DEPLOYED]
    return HelmRelease(newest=revisions[-1], deployed=deployed[-1] if deployed else None)


def _revision(secret: Mapping[str, Any]) -> Revision:
    meta = secret["metadata"]
    try:
        # Helm encodes its record, and Kubernetes encodes it again.
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        record = json.loads(gzip.decompress(packed))
        chart = record["chart"]["metadata"]
        return Revision(
            name=str(record["name"]),
            namespace=str(record["namespace"]),
            number=int(record["version"]),
            status=str(record["info"]["status"]),
            chart=str(chart["name"]),
            chart_version=str(chart["version"]),
            app_version=str(chart.get("appVersion", "")),
        )
    except (KeyError, TypeError, ValueError, OSError, EOFError, zlib.error, binascii.Error):
        raise UnreadableReleaseError(f"{meta['namespace']}/{meta['name']}") from None
