"""Requests under way over time as a picture, by matplotlib, which is optional and imported when it is asked for."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from sitectl.shell.errors import Exit, SitectlError
from stacks.whatif.outcome import Column, SiteOutcome

FORMATS = (".svg", ".png")
INSTALL = "pip install 'matplotlib~=3.11'"
_BEFORE_S = 60.0
_WIDTH, _HEIGHT = 9.0, 3.0


def require(file: Path) -> None:
    """Raises SitectlError for another format, and without matplotlib: before anything is simulated."""
    if file.suffix.lower() not in FORMATS:
        raise SitectlError(
            "no such format of a picture",
            got=file.name,
            allowed=", ".join(FORMATS),
            fix=f"--plot {file.stem}.svg",
            status=Exit.USAGE,
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise SitectlError("matplotlib is not installed", fix=f"{INSTALL} (the extra `plot`)", status=Exit.UNABLE)


def write(outcome: SiteOutcome, file: Path) -> None:
    """One panel per model: requests under way by second, as declared and in the scenario.

    Raises SitectlError where no model was simulated, and OSError.
    """
    if not outcome.models:
        raise SitectlError("no model was simulated, so there is nothing to draw", fix="leave --plot out")
    matplotlib = importlib.import_module("matplotlib")
    # No window, and the same bytes for the same outcome.
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "sitectl"
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, panels = pyplot.subplots(
        len(outcome.models), figsize=(_WIDTH, _HEIGHT * len(outcome.models)), squeeze=False, layout="constrained"
    )
    for (panel,), model in zip(panels, outcome.models, strict=True):
        until_s = model.last.trace[-1][0]
        _draw(panel, model.declared, "as declared", until_s)
        if model.scenario:
            _draw(panel, model.scenario, outcome.words, until_s)
        panel.set(title=model.model, xlabel="seconds since the change", ylabel="requests under way")
        panel.legend()
    metadata = {"Date": None} if file.suffix.lower() == ".svg" else {}
    figure.savefig(file, metadata=metadata)
    pyplot.close(figure)


def _draw(panel: Any, column: Column, label: str, until_s: float) -> None:
    points = [(second, count) for second, count in column.trace if -_BEFORE_S <= second <= until_s]
    panel.plot([second for second, _ in points], [count for _, count in points], label=label, linewidth=1)
