"""`drift`: one issue a site whose cluster is not what its file says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sitectl import markdown, previews_folder
from sitectl.errors import Exit
from sitectl.forge import choosing
from sitectl.forge.keeping import drift_mark, keep_issues
from sitectl.report import SiteReport

MORE = """\
Reads refreshed previews that the scheduled job saved (`plan SITE --refresh --save DIR/SITE.json`). A site whose preview
shows a change has drifted, or its last `up` is missing. The token is GITHUB_TOKEN or GITLAB_TOKEN.

exit status 1: a site could not be looked at
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("previews", type=Path, metavar="DIR", help="folder with one refreshed preview a site")
    choosing.add_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the issues instead of keeping them")


def run(context: Any, arguments: argparse.Namespace) -> int:
    reports = previews_folder.reports(arguments.previews)
    bodies = {one.site: body(one) for one in reports}
    blind = [one.site for one in reports if one.errors]
    if arguments.dry_run:
        context.say("\n".join(text or f"{site}: no drift" for site, text in bodies.items()), bodies)
        return int(Exit.REFUSED if blind else Exit.OK)
    done = keep_issues(choosing.choose(arguments), bodies)
    context.say("\n".join(f"{site}: {did}" for site, did in done.items()), done)
    return int(Exit.REFUSED if blind else Exit.OK)


def body(one: SiteReport) -> str | None:
    """The issue of a site, or None where nothing has drifted."""
    if one.empty:
        return None
    head = [
        drift_mark(one.site),
        "The cluster is not what the site's file says, or the last `up` is missing. What the next `up` would do:",
        "",
    ]
    if one.errors:
        head[1] = "The site could not be looked at, so nobody knows whether it has drifted:"
    return markdown.cut("\n".join([*head, *markdown.details(one)]))
