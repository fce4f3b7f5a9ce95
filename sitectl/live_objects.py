"""Reads a site's objects: what the engine's state declares, and what the cluster has, with each field's manager."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from floor.metadata import FIELD_MANAGER
from sitectl import site_cluster
from sitectl.field_owners import ForeignFields, foreign_fields

# A patch adds to an object of others, who set its other fields.
_OWN = re.compile(r"kubernetes:.+(?<!Patch)")


def records(project: Path, site: str, file: Path, preview: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `look` finds, for a saved preview; nothing after a preview that failed, whose error is enough."""
    if any(diagnostic.get("severity") == "error" for diagnostic in preview.get("diagnostics") or ()):
        return []
    return [fields.record() for fields in look(project, site, file)]


def look(project: Path, site: str, file: Path) -> list[ForeignFields]:
    """Fields of the site's objects that others have set. Raises SitectlError where state or cluster cannot be read."""
    declared = _declared(site_cluster.pulumi(project, site, "stack", "export"))
    if not declared:
        return []
    cluster = site_cluster.of_site(project, site, file)
    kinds = sorted({f"{body['kind']}.{_version(body['apiVersion'])}" for body in declared})
    live = cluster.objects("the site's objects", kinds, "--show-managed-fields")
    return foreign_fields(declared, live, stack=site)


def _declared(state: Any) -> list[dict[str, Any]]:
    """Objects that are the site's own."""
    resources = (state.get("deployment") or {}).get("resources") or []
    inputs = (resource.get("inputs") or {} for resource in resources if _OWN.fullmatch(str(resource.get("type"))))
    return [body for body in inputs if FIELD_MANAGER in ((body.get("metadata") or {}).get("annotations") or {})]


def _version(api_version: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{version}.{group}"
