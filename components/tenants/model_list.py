"""What a tenant is shown of the models: those that it may call."""

from __future__ import annotations

import json
from collections.abc import Mapping


def model_list(owners: Mapping[str, str]) -> str:
    """Body of GET /v1/models; owners: model -> its `owned_by`."""
    cards = [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in sorted(owners.items())]
    return json.dumps({"object": "list", "data": cards})
