"""Golden files of objects: one whole of a kind, and others as what differs from it.

To accept a wanted change: UPDATE_GOLDEN=1 pytest tests/unit/spine
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.differences import over, rows

FOLDER = Path(__file__).parent / "golden"
OVER = {
    **dict.fromkeys(
        ("model-data-parallel", "model-drafts", "model-on-a-slice", "model-one-gpu", "model-simulator"), "model-vllm"
    ),
    "gateway-lab": "gateway-prod",
}
"""Which file another is written over."""
Objects = list[dict[str, Any]]


def agreed(name: str) -> Objects:
    """The objects that a file stands for."""
    if name in OVER:
        return list(over(by_place(agreed(OVER[name])), yaml.safe_load(_file(name).read_text())).values())
    return list(yaml.safe_load_all(_file(name).read_text()))


def agree(name: str, built: Objects) -> None:
    """Write the file where UPDATE_GOLDEN asks for it."""
    if not os.environ.get("UPDATE_GOLDEN"):
        return
    if name in OVER:
        changes = list(rows(by_place(agreed(OVER[name])), by_place(built)))
        text = yaml.safe_dump(changes, default_flow_style=None, width=120)
    else:
        text = yaml.safe_dump_all(built, sort_keys=False, width=120)
    _file(name).write_text(text)


def _file(name: str) -> Path:
    return FOLDER / f"{name}.yaml"


def by_place(objects: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By kind, and a number for the second and later ones of it."""
    seen: Counter[str] = Counter()
    placed = {}
    for body in objects:
        kind = str(body.get("kind", "values"))
        seen[kind] += 1
        placed[f"{kind} {seen[kind]}"] = body
    return placed
