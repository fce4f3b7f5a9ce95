"""The unit tier as a whole."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of the search for cycles, which takes a tenth of the time otherwise."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
