"""Which of the machine's labs a test may take."""

from __future__ import annotations

from pathlib import Path

from lab.cluster import network
from lab.errors import LabError
from lab.paths import Lab


def free_index(home: Path, candidates: tuple[int, ...]) -> int:
    """The first of these indexes that is the lab's at `home` already, or nobody's. Raises LabError when none is."""
    for index in candidates:
        owner = network.owner(Lab(home=home, cache=home, index=index))
        if owner in (None, home) or not owner.exists():
            return index
    raise LabError(
        f"labs {', '.join(map(str, candidates))} all run on this machine, from other folders",
        fix="take one down: `ip -details link show` names its folder, `LAB_HOME=... LAB_INDEX=... python -m lab down`",
    )
