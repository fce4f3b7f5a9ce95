"""`comment`: one comment for all sites on a pull or merge request, edited in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sitectl.change import previews_folder
from sitectl.forge import choosing
from sitectl.forge.keeping import keep_comment
from sitectl.output import kept_files, markdown
from sitectl.shell.command import PATH, Command, CommandContext, pass_context
from sitectl.shell.errors import Exit

MORE = """\
Reads previews that the trusted job saved, one DIR/SITE.json per site, and keeps one comment on the request. The token
is GITHUB_TOKEN or GITLAB_TOKEN. With --dry-run it prints the comment and calls no forge.

\b
  python -m sitectl comment previews --forge github --number 7 --dry-run
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("previews", type=PATH, metavar="DIR", help="folder with one preview per site")
@choosing.options(required=True)
@click.option("--number", type=int, required=True, help="number of the pull or merge request")
@click.option("--rest", default="", metavar="TEXT", help="where the full text is, if the comment is cut")
@click.option("--whole", type=PATH, metavar="FILE", help="write the uncut Markdown, for the job's artifact")
@click.option("--dry-run", is_flag=True, help="print the comment instead of posting it")
@pass_context
def command(
    context: CommandContext,
    /,
    *,
    previews: Path,
    number: int,
    rest: str,
    whole: Path | None,
    dry_run: bool,
    **account: Any,
) -> int:
    kept_files.markdown_file("--whole", whole)
    reports = previews_folder.reports(previews)
    body = markdown.document(reports, rest=rest)
    kept_files.write(whole, markdown.uncut(reports))
    if dry_run:
        context.say(body, {"body": body})
        return int(Exit.OK)
    did = keep_comment(choosing.choose(**account), number, body, markdown.MARK)
    context.say(f"comment on {number}: {did}", {"comment": did})
    return int(Exit.OK)
