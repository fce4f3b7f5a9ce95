"""`python -m components.monitoring.dashboards.pictures URL`: plots of the panels' queries, for the pages.

Grafana draws them otherwise: each picture states that it is a plot of the queries. By matplotlib, which is optional.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import httpx

from components.monitoring.dashboards.readings import PanelReading, ReadingError, Window, read_panels
from floor import command_line
from manifests import grafana

INSTALL = "pip install 'matplotlib~=3.11'"
_COLUMNS = 3
_WIDTH, _HEIGHT = 4.6, 2.7
_DOTS_PER_INCH = 80
_MOST_NAMES, _LONGEST_NAME = 8, 36
_WRAPPED_AT = 54
_MARGIN = 0.2
_COLOURS = 256
# Grafana's units as an axis has them: what values are divided by, and a name.
_UNITS = {
    "s": (1, "seconds"),
    "short": (1, ""),
    "percentunit": (1, "share"),
    "bytes": (1e6, "MB"),
    "Bps": (1e6, "MB/s"),
    "reqps": (1, "requests/s"),
    "celsius": (1, "\u00b0C"),
    "watt": (1, "W"),
}


@click.command(cls=command_line.Command)
@click.argument("url", metavar="URL")
@click.option("--dashboard", "names", multiple=True, help="one of them; all if not given")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("pictures"), show_default=True)
@click.option("--minutes", default=15, show_default=True, help="of the past")
@click.option("--step-s", default=5, show_default=True, help="seconds between two values")
@click.option("--rate-s", default=60, show_default=True, help="seconds that a rate is taken over")
@click.option("--gpu-hour-price", default="1", show_default=True, help="for the costs")
@click.option("--source", default="", help="what was measured, for the heading")
def command(
    *,
    url: str,
    names: tuple[str, ...],
    out: Path,
    minutes: int,
    step_s: int,
    rate_s: int,
    gpu_hour_price: str,
    source: str,
) -> int:
    """Draw each dashboard out of the Prometheus at URL. Panels without data are listed, and make the status 1."""
    if not can_draw():
        raise ReadingError("matplotlib is not installed", fix=f"{INSTALL} (the extra `plot`)")
    texts = grafana.dashboards()
    if unknown := [name for name in names if name not in texts]:
        raise ReadingError(f"no dashboard {', '.join(unknown)}", fix=f"name one of {', '.join(texts)}")
    window = Window(until_s=time.time(), length_s=minutes * 60, step_s=step_s, rate_s=rate_s)
    out.mkdir(parents=True, exist_ok=True)
    empty = []
    with httpx.Client(base_url=url) as client:
        for name in names or texts:
            panels = read_panels(client, texts[name], window, {"gpu_hour_price": gpu_hour_price})
            draw(name, panels, out / f"{name}.png", source)
            empty += [f"no data: {name}: {panel.title}" for panel in panels if not panel.has_data]
    print("".join(f"{line}\n" for line in empty), end="")
    return int(bool(empty))


def main(words: Sequence[str] | None = None) -> int:
    """Draw dashboards; exit status 1 for what the user can fix."""
    try:
        return command_line.run(command, words, name="python -m components.monitoring.dashboards.pictures")
    except ReadingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(name: str, panels: Sequence[PanelReading], file: Path, source: str) -> None:
    """One picture of all panels that have data, three in a line."""
    shown = [panel for panel in panels if panel.has_data]
    if not shown:
        return
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    lines = -(-len(shown) // _COLUMNS)
    figure, places = pyplot.subplots(
        lines, _COLUMNS, figsize=(_WIDTH * _COLUMNS, _HEIGHT * lines + 0.4), squeeze=False, layout="constrained"
    )
    figure.suptitle(" - ".join(filter(None, (f"{name}: plots of the panels' queries, not Grafana", source))))
    for place in [place for row in places for place in row][len(shown) :]:
        place.set_axis_off()
    begin = min(line.seconds[0] for panel in shown for line in panel.series) / 60
    for panel, place in zip(shown, (place for row in places for place in row), strict=False):
        _draw_panel(panel, place, begin)
    image = importlib.import_module("PIL.Image")
    figure.savefig(file, dpi=_DOTS_PER_INCH, pil_kwargs={"optimize": True})
    pyplot.close(figure)
    # A palette takes a third of the bytes.
    with image.open(file) as picture:
        fewer: Callable[..., Any] = picture.convert("RGB").quantize
        fewer(_COLOURS).save(file, optimize=True)


def _draw_panel(panel: PanelReading, place: Any, begin_minutes: float) -> None:
    divisor, unit = _UNITS.get(panel.unit, (1, panel.unit.removeprefix("suffix: ")))
    for index, line in enumerate(panel.series):
        name = textwrap.shorten(line.name, _LONGEST_NAME, placeholder="...") if index < _MOST_NAMES else None
        minutes = [second / 60 for second in line.seconds]
        values = [value / divisor for value in line.values]
        place.plot(minutes, values, *(["r--"] if line.is_target else []), label=name, linewidth=1)
    values = [0.0, *(value / divisor for line in panel.series for value in line.values)]
    margin = (max(values) - min(values)) * _MARGIN or 1.0
    # A line at 0 is seen, too.
    place.set(xlim=(begin_minutes, 0), ylim=(min(values) - margin / 4, max(values) + margin))
    place.set_title("\n".join(textwrap.wrap(panel.title, _WRAPPED_AT)), fontsize=9)
    place.set_ylabel(unit, fontsize=8)
    place.set_xlabel("minutes before the end", fontsize=7)
    place.tick_params(labelsize=7)
    if any(line.name for line in panel.series):
        place.legend(fontsize=5, loc="best", framealpha=0.5)


if __name__ == "__main__":
    sys.exit(main())
