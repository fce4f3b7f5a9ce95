"""`python -m components.monitoring.dashboards`: writes manifests/dashboards/NAME.json out of the boards."""

from __future__ import annotations

from components.monitoring.dashboards.boards import BOARDS
from components.monitoring.dashboards.grafana import text_of
from manifests.grafana import FOLDER


def write() -> None:
    """One file for each board, and no other."""
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.json"):
        if file.stem not in {board.name for board in BOARDS}:
            file.unlink()
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(text_of(board))


if __name__ == "__main__":
    write()
