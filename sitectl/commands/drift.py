"""`drift`: where a cluster differs from its site's file; now, or in one issue per site."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from sitectl.change import previews_folder
from sitectl.change.report import SiteReport, of_preview_document
from sitectl.forge import choosing
from sitectl.forge.keeping import drift_mark, keep_issues
from sitectl.live import engine, live_objects
from sitectl.offline import checkout
from sitectl.output import markdown, words
from sitectl.output.code_scanning import Result, format_option, sarif, workflow_commands
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError

MORE = """\
A site has drifted if a refreshed preview shows a change, or if a manager other than the program has set a field of its
objects (metadata.managedFields), which no `up` changes. Each such field is shown with its manager and the command that
reverts it.

\b
  python -m sitectl drift --site berlin          checks now
  python -m sitectl drift DIR --forge github     keeps one issue per site

--site needs engine, state, cluster and kubectl. DIR holds what the scheduled job saved: `plan SITE --refresh --save
DIR/SITE.json`. The token is GITHUB_TOKEN or GITLAB_TOKEN.

exit status 1: a site that was checked now has drifted, or a site of DIR could not be checked
"""

_RULES = {
    "changed": "The cluster is as the site's file states.",
    "set-by-others": "Only the program sets fields of the site's objects.",
}


@click.command(cls=Command, epilog=MORE)
@click.argument("previews", required=False, type=PATH, metavar="[DIR]", help="folder with one refreshed preview a site")
@click.option(
    "--site",
    "sites",
    multiple=True,
    metavar="SITE",
    shell_complete=site_names,
    help="check this site now; may be repeated",
)
@format_option
@choosing.options(required=False)
@click.option("--dry-run", is_flag=True, help="print the issues instead of keeping them")
@pass_context
def command(
    context: CommandContext,
    /,
    *,
    previews: Path | None,
    sites: tuple[str, ...],
    form: str,
    dry_run: bool,
    **account: Any,
) -> int:
    if (previews is None) == (not sites):
        raise SitectlError(
            "what to look at?",
            allowed="DIR or --site SITE, one of them",
            fix="python -m sitectl drift --site SITE",
            status=Exit.USAGE,
        )
    if previews is None:
        return _look(context, sites, form)
    if not (account["forge"] or dry_run):
        raise SitectlError("where are the issues kept?", fix="--forge github or --forge gitlab", status=Exit.USAGE)
    reports = previews_folder.reports(previews)
    bodies = {report.site: body(report) for report in reports}
    blind = [report.site for report in reports if report.errors]
    if dry_run:
        context.say("\n".join(text or f"{site}: no drift" for site, text in bodies.items()), bodies)
        return int(Exit.REFUSED if blind else Exit.OK)
    done = keep_issues(choosing.choose(**account), bodies)
    context.say("\n".join(f"{site}: {did}" for site, did in done.items()), done)
    return int(Exit.REFUSED if blind else Exit.OK)


def _look(context: CommandContext, sites: Sequence[str], form: str) -> int:
    project = context.project
    files = checkout.chosen_sites(project, sites)
    reports = []
    for site, file in files.items():
        with context.progress.layer(f"look at {site}"):
            preview = engine.preview(project, site, refresh=True)
            preview["foreign"] = live_objects.records(project, site, file, preview)
        reports.append(of_preview_document(site, preview))
    status = int(Exit.OK if all(report.empty for report in reports) else Exit.REFUSED)
    if form != "text":
        log = sarif(_results(reports, {site: file.name for site, file in files.items()}), _RULES)
        context.say(workflow_commands(log) if form == "github" else json.dumps(log, indent=2), log)
        return status
    context.say("\n".join(map(words.drift, reports)), {report.site: report.record() for report in reports})
    return status


def _results(reports: Sequence[SiteReport], files: dict[str, str]) -> Iterator[Result]:
    """Drift is of objects; the file that declares them is the site's."""
    for report in reports:
        file = files[report.site]
        for text in (*report.errors, *(f"{row.resource}: {row.what}" for row in report.rows)):
            yield Result(rule="changed", level="error", text=text, file=file)
        for fields in report.foreign:
            yield Result(rule="set-by-others", level="error", text="\n".join(words.foreign([fields])), file=file)


def body(report: SiteReport) -> str | None:
    """The issue of a site, or None where nothing has drifted."""
    if report.empty:
        return None
    head = [
        drift_mark(report.site),
        "The cluster is not as the site's file states, or the last `up` is missing. What the next `up` would do:",
        "",
    ]
    if report.errors:
        head[1] = "The site could not be looked at, so whether it has drifted is not known:"
    return markdown.cut("\n".join([*head, *markdown.details(report)]))
