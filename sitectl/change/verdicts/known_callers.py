"""Tenants as a gatekeeper knows them, out of the inputs of the ConfigMap that it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_FILE = "tenants.json"


def known(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Tenant -> its models, tier and limits; empty for any other object."""
    content = (body.get("data") or {}).get(_FILE)
    try:
        tenants = json.loads(content).get("tenants") if isinstance(content, str) else None
    except (AttributeError, RecursionError, ValueError):
        return {}
    return {str(name): tenant for name, tenant in (tenants or {}).items() if isinstance(tenant, Mapping)}
