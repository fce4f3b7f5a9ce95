"""Tenants as a gatekeeper knows them, out of the inputs of the ConfigMap that it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_FILE = "tenants.json"


def known(body: Mapping[str, Any], of: str = "tenants") -> dict[str, Mapping[str, Any]]:
    """Tenant -> its models, tier and limits; empty for any other object. of: `canaries` has them by their model."""
    content = (body.get("data") or {}).get(_FILE)
    try:
        entries = json.loads(content).get(of) if isinstance(content, str) else None
    except (AttributeError, RecursionError, ValueError):
        return {}
    return {str(name): entry for name, entry in (entries or {}).items() if isinstance(entry, Mapping)}
