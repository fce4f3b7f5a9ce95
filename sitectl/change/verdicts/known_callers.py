"""Tenants as a gatekeeper knows them, out of the inputs of the ConfigMap that it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_FILE = "tenants.json"


def known(body: Mapping[str, Any], of: str = "tenants") -> dict[str, Mapping[str, Any]]:
    """Tenant -> its models, tier and limits; empty for any other object. of: `canaries` has them by their model."""
    entries = _content(body).get(of)
    if not isinstance(entries, Mapping):
        return {}
    return {str(name): entry for name, entry in entries.items() if isinstance(entry, Mapping)}


def parts_that_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """Names of the parts of the file, such as `names` or `pools`, that are other ones after the change."""
    old, new = _content(before), _content(after)
    return {str(part) for part in {*old, *new} if old.get(part) != new.get(part)}


def _content(body: Mapping[str, Any]) -> Mapping[str, Any]:
    content = (body.get("data") or {}).get(_FILE)
    try:
        parts = json.loads(content) if isinstance(content, str) else {}
    except (RecursionError, ValueError):
        return {}
    return parts if isinstance(parts, Mapping) else {}
