"""`docs`: the pages, and the reference of this command line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sitectl.errors import Exit, SitectlError
from stacks.loading.problems import nearest

MORE = """\
  python -m sitectl docs                 all pages with their titles
  python -m sitectl docs add-a-model     one of them
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", nargs="?", metavar="PAGE", help="name of a page")


def run(context: Any, arguments: argparse.Namespace) -> int:
    pages = _pages(context.project / "docs")
    if arguments.page is None:
        width = max(len(name) for name in pages)
        titles = {name: _title(path) for name, path in pages.items()}
        context.say("\n".join(f"{name:<{width}}  {title}" for name, title in titles.items()), titles)
        return int(Exit.OK)
    page = arguments.page.removesuffix(".md")
    if page not in pages:
        near = nearest(page, pages)
        raise SitectlError(
            f"no page '{page}'" + (f"; did you mean '{near}'?" if near else ""),
            fix="choose one of the list: python -m sitectl docs",
            status=Exit.USAGE,
        )
    context.say(pages[page].read_text(), {"page": page, "text": pages[page].read_text()})
    return int(Exit.OK)


def _pages(folder: Path) -> Mapping[str, Path]:
    return {path.stem: path for path in sorted(folder.rglob("*.md")) if path.stem != "README"}


def _title(path: Path) -> str:
    return next(
        (line.removeprefix("# ").strip() for line in path.read_text().splitlines() if line.startswith("# ")), ""
    )
