"""Helm charts rendered offline into plain objects, in the order in which an API server wants them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from lab.paths import Lab

Manifest = dict[str, Any]

# What a kind needs comes before it; kinds that are not named come last, workloads among them.
_KIND_ORDER = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ConfigMap",
    "Secret",
    "Service",
    "MutatingWebhookConfiguration",
    "Job",
)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One chart of the bundle under its Helm release name, with the values that differ from the chart's own."""

    name: str
    chart: str
    namespace: str
    values: dict[str, Any]


def render(lab: Lab, release: Release) -> list[Manifest]:
    """The release's objects, hooks included and sorted for applying; raises LabError when helm refuses."""
    helm, chart = lab.bin / "helm", lab.bundle / "charts" / release.chart
    for path, part in ((helm, "helm"), (chart, "charts")):
        if not path.exists():
            raise LabError(f"controllers: {path} is missing", fix=f"run `python -m lab.install` (part {part})")
    with tempfile.TemporaryDirectory(prefix="lab-helm-") as scratch:
        values = Path(scratch) / "values.yaml"
        values.write_text(yaml.safe_dump(release.values))
        # A home of its own: no repositories, plugins or registry logins of the user take part.
        result = subprocess.run(
            [helm, "template", release.name, chart, "--namespace", release.namespace, "--values", values],
            env={"PATH": os.environ.get("PATH", ""), "HOME": scratch},
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode != 0:
        raise LabError(
            f"controllers: helm cannot render {release.chart}: {result.stderr.strip()}",
            fix="correct the values in lab/controllers/releases.py, or install the part charts again",
        )
    return in_order(load(result.stdout))


def load(text: str) -> list[Manifest]:
    """The objects of a rendered chart; documents that hold nothing but comments are left out."""
    return [document for document in yaml.safe_load_all(text) if document]


def in_order(manifests: list[Manifest]) -> list[Manifest]:
    """Sorted by what needs what; objects of one kind keep their order."""
    ranks = {kind: rank for rank, kind in enumerate(_KIND_ORDER)}
    return sorted(manifests, key=lambda manifest: ranks.get(manifest["kind"], len(ranks)))
