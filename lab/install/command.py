"""The installer's command line, a command of `lab`, and by itself."""

from __future__ import annotations

from pathlib import Path

import click

from lab.install.installer import PARTS, Installation, install, megabytes
from lab.paths import Lab

_NAMES = ", ".join(part.name for part in PARTS)


@click.command()
@click.option("--only", multiple=True, metavar="PART", help=f"install this part alone; repeatable ({_NAMES})")
@click.option(
    "--bundle", type=click.Path(path_type=Path), metavar="DIR", help="where CRDs and charts go (LAB_HOME/bundle)"
)
@click.option("--verify", is_flag=True, help="read every cached file again instead of its size alone")
@click.option("--drop-go-cache", is_flag=True, help="afterwards remove Go's module and build caches")
@click.option("--list", "lists", is_flag=True, help="print the parts, their versions and states, and stop")
@click.pass_obj
def command(
    lab: Lab, *, only: tuple[str, ...], bundle: Path | None, verify: bool, drop_go_cache: bool, lists: bool
) -> int:
    """Build or find every tool of the lab and link it into LAB_HOME/bin; a second run is quick."""
    folder = bundle.resolve() if bundle else lab.bundle
    if lists:
        print_parts(Installation(lab, folder, verify))
    else:
        install(lab, list(only) or None, keep_go_cache=not drop_go_cache, bundle=folder, verify=verify)
    return 0


def print_parts(run: Installation) -> None:
    """One row per part: name, version, ready or not, size, and a note on its state."""
    rows = []
    total = 0
    for part in PARTS:
        state = part.state(run)
        total += state.size
        size = megabytes(state.size) if state.size else "-"
        rows.append((part.name, part.version(), "ready" if state.ready else "missing", size, state.note))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row[:4], widths, strict=True)), row[4], sep="  ")
    print(f"together {megabytes(total)}; go: {run.builder.toolchain.why}")
