"""Dashboards as Grafana reads them; components/monitoring/dashboards has what writes them, by `make docs`."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "dashboards"


def dashboards() -> dict[str, str]:
    """The JSON of each dashboard, by its name, in the names' order."""
    return {file.stem: file.read_text() for file in sorted(FOLDER.glob("*.json"))}
