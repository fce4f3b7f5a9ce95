"""Taints of nodes as machine configs write them, and the tolerations that pods answer them with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from floor import gpu_nodes


@dataclass(frozen=True, kw_only=True, order=True)
class Taint:
    """What keeps pods away from a node."""

    key: str
    value: str
    effect: str

    def wire(self) -> dict[str, str]:
        """As in a Node's spec."""
        return {"key": self.key, **({"value": self.value} if self.value else {}), "effect": self.effect}


GPU_TAINT = Taint(key=gpu_nodes.TAINT_KEY, value=gpu_nodes.TAINT_VALUE, effect=gpu_nodes.TAINT_EFFECT)


def read_taint(key: str, text: str) -> Taint:
    """A taint out of `key: value:Effect`, as a machine config has it."""
    value, _, effect = text.rpartition(":")
    return Taint(key=key, value=value, effect=effect)


def tolerations(taints: Iterable[Taint]) -> list[dict[str, Any]]:
    """Tolerations of these taints whatever their values are, sorted; equal ones once."""
    answered = sorted({(taint.key, taint.effect) for taint in taints})
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in answered]
