"""`comment`: one comment for all sites on a pull or merge request, edited in place."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sitectl import kept_files, markdown, previews_folder
from sitectl.errors import Exit
from sitectl.forge import choosing
from sitectl.forge.keeping import keep_comment

MORE = """\
Reads previews that the trusted job saved, one DIR/SITE.json per site, and keeps one comment on the request. The token
is GITHUB_TOKEN or GITLAB_TOKEN. With --dry-run it prints the comment and calls no forge.

  python -m sitectl comment previews --forge github --number 7 --dry-run
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("previews", type=Path, metavar="DIR", help="folder with one preview per site")
    choosing.add_arguments(parser)
    parser.add_argument("--number", type=int, required=True, help="number of the pull or merge request")
    parser.add_argument("--rest", default="", metavar="TEXT", help="where the full text is, if the comment is cut")
    parser.add_argument("--whole", type=Path, metavar="FILE", help="write the uncut Markdown, for the job's artifact")
    parser.add_argument("--dry-run", action="store_true", help="print the comment instead of posting it")


def run(context: Any, arguments: argparse.Namespace) -> int:
    kept_files.markdown_file("--whole", arguments.whole)
    reports = previews_folder.reports(arguments.previews)
    body = markdown.document(reports, rest=arguments.rest)
    kept_files.write(arguments.whole, markdown.uncut(reports))
    if arguments.dry_run:
        context.say(body, {"body": body})
        return int(Exit.OK)
    did = keep_comment(choosing.choose(arguments), arguments.number, body, markdown.MARK)
    context.say(f"comment on {arguments.number}: {did}", {"comment": did})
    return int(Exit.OK)
