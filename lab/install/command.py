"""The installer's command line, to be mounted by another parser or run alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from lab.install.installer import PARTS, Installation, install, megabytes
from lab.paths import Lab


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Build or find every tool of the lab and link it into LAB_HOME/bin; a second run is quick."
    parser.add_argument(
        "--only", action="append", metavar="PART", help=f"install this part alone; repeatable ({_names()})"
    )
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="where CRDs and charts go (LAB_HOME/bundle)")
    parser.add_argument("--verify", action="store_true", help="read every cached file again instead of its size alone")
    parser.add_argument("--drop-go-cache", action="store_true", help="afterwards remove Go's module and build caches")
    parser.add_argument("--list", action="store_true", help="print the parts, their versions and states, and stop")


def run(args: argparse.Namespace) -> int:
    """Do what the arguments say; LabError goes on to the caller."""
    lab = Lab.from_environment()
    bundle = args.bundle.resolve() if args.bundle else lab.bundle
    if args.list:
        print_parts(Installation(lab, bundle, args.verify))
    else:
        install(lab, args.only, keep_go_cache=not args.drop_go_cache, bundle=bundle, verify=args.verify)
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


def _names() -> str:
    return ", ".join(part.name for part in PARTS)
