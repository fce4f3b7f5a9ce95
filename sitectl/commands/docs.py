"""`docs`: the pages, and the reference of this command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click

from floor.problems import meant, nearest
from sitectl.shell import home
from sitectl.shell.command import Command, CommandContext, pass_context
from sitectl.shell.errors import Exit, SitectlError

MORE = """\
\b
  python -m sitectl docs                 all pages with their titles
  python -m sitectl docs add-a-model     one of them

A page is named by its name, by a beginning that no other page has, or by its path as links have it.
"""
# In the order of reading: what to do before why it is so.
_FOLDERS = ("docs", "docs/how-to", "docs/runbooks", "docs/adr")
_INDEX = "README"


def page_names(context: click.Context, argument: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """Pages, for the completion of a shell."""
    return [name for name in pages(home.above_docs()) if name.startswith(incomplete)]


@click.command(cls=Command, epilog=MORE)
@click.argument("page", required=False, shell_complete=page_names, help="name or path of a page")
@pass_context
def command(context: CommandContext, *, page: str | None) -> int:
    # A user's folder of sites may have pages of its own.
    project: Path = context.project if home.is_checkout() else home.above_docs()
    by_name = pages(project)
    if page is None:
        titles = {name: _title(path) for name, path in by_name.items()}
        context.say("\n".join(_lines(project, by_name, titles)), titles)
        return int(Exit.OK)
    name = _named(page, by_name)
    text = by_name[name].read_text()
    context.say(text, {"page": name, "text": text})
    return int(Exit.OK)


def _lines(project: Path, pages: Mapping[str, Path], titles: Mapping[str, str]) -> list[str]:
    """The pages below the folder that they are in."""
    width = max(len(name) for name in pages)
    lines, folder = [], ""
    for name, path in pages.items():
        above = path.parent.relative_to(project).as_posix()
        lines += [*([""] if folder else []), above] if above != folder else []
        lines.append(f"  {name:<{width}}  {titles[name]}")
        folder = above
    return [*lines, "", "one of them: python -m sitectl docs NAME"]


def _named(given: str, pages: Mapping[str, Path]) -> str:
    """The page that is meant. Raises SitectlError for none and for several."""
    page = _name_in(given)
    if page in pages:
        return page
    begun = [name for name in pages if page and name.startswith(page)]
    if len(begun) == 1:
        return begun[0]
    near = "" if begun else nearest(page, pages)
    raise SitectlError(
        f"several pages begin with '{page}'" if begun else f"no page '{page}'" + meant(near),
        allowed=", ".join(begun),
        fix="choose one of the list: python -m sitectl docs",
        status=Exit.USAGE,
    )


def _name_in(given: str) -> str:
    """The name in a path or link: `how-to/add-a-site.md#steps` is add-a-site, `runbooks/README.md` is runbooks."""
    parts = [part for part in re.sub(r"(\.md)?(#.*)?$", "", given).split("/") if part not in ("", ".", "..", "docs")]
    if len(parts) > 1 and parts[-1] == _INDEX:
        parts.pop()
    return parts[-1] if parts else _INDEX


def pages(project: Path) -> Mapping[str, Path]:
    """Pages by name, each folder's index first; an index below docs has its folder's name."""
    by_name = {}
    for folder in _FOLDERS:
        paths = sorted((project / folder).glob("*.md"), key=lambda path: (path.stem != _INDEX, path.stem))
        for path in paths:
            is_below = path.stem == _INDEX and folder != _FOLDERS[0]
            by_name[path.parent.name if is_below else path.stem] = path
    return by_name


def _title(path: Path) -> str:
    return next(
        (line.removeprefix("# ").strip() for line in path.read_text().splitlines() if line.startswith("# ")), ""
    )
