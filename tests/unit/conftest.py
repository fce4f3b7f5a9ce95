"""The unit tier as a whole."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

# Of emulated machines and processes, whose tests wait longer than they compute.
_WAITING = ("machines", "runner", "talos_api")
# Modules of others between two of these: forks take tests in their order, so all of them get some early.
_BETWEEN = 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that wait come early: at the end a worker would wait alone, with the other cores idle."""
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)
    waiting = [path for path in modules if path.parent.name in _WAITING]
    others = [path for path in modules if path.parent.name not in _WAITING]
    places = {path: place * (_BETWEEN + 1) for place, path in enumerate(waiting)}
    places |= {path: place + min(place // _BETWEEN + 1, len(waiting)) for place, path in enumerate(others)}
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of the search for cycles, which takes a tenth of the time otherwise.

    Forks then share them too.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
