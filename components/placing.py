"""On which nodes the pods run that have a volume of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Placing:
    """On which nodes pods with volumes run."""

    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]


def placed(placing: Placing) -> dict[str, Any]:
    """Fields of a pod that may run on these nodes alone."""
    return {
        **({"nodeSelector": dict(placing.node_selector)} if placing.node_selector else {}),
        **({"tolerations": [dict(entry) for entry in placing.tolerations]} if placing.tolerations else {}),
    }
