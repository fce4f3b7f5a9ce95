"""`plan`: what `pulumi up` would do to a site, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from sitectl.change import cold_starts, report, saved_previews
from sitectl.change.verdicts.model import Severity
from sitectl.live import engine, live_objects
from sitectl.offline import both_sides, checkout, proofs, warned
from sitectl.output import kept_files, markdown, words
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError

MORE = """\
Runs `pulumi preview --json` for the site's stack, so it needs the engine, its state and the cluster; or reads a
saved preview. Each row shows what happens, the reason for its severity, and which tenants it affects.

\b
  python -m sitectl plan berlin
  python -m sitectl plan berlin --from preview.json     a saved one
  python -m sitectl plan berlin --refuse irreversible   1 if anything is lost

--from reads what --save wrote, or `pulumi preview --json > preview.json`.
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option("--from", "saved", type=PATH, metavar="FILE", help="a saved `pulumi preview --json`")
@click.option("--refresh", is_flag=True, help="read the cluster first, so that drift shows")
@click.option("--config-file", type=PATH, metavar="FILE", help="the stack file, if it is another one")
@click.option(
    "--since",
    metavar="REVISION",
    help="SLO headroom and machines against the site at this revision (default: the last commit)",
)
@click.option("--save", type=PATH, metavar="FILE", help="keep the engine's preview, for --from")
@click.option("--markdown", "page", type=PATH, metavar="FILE", help="also write it as Markdown that is safe to post")
@click.option(
    "--refuse",
    type=click.Choice([severity.name.lower() for severity in Severity if severity is not Severity.LIVE]),
    help="exit status 1 if a change is this severe or worse",
)
@pass_context
def command(
    context: CommandContext,
    *,
    site: str,
    saved: Path | None,
    refresh: bool,
    config_file: Path | None,
    since: str | None,
    save: Path | None,
    page: Path | None,
    refuse: str | None,
) -> int:
    kept_files.preview_file("--save", save)
    kept_files.markdown_file("--markdown", page)
    if save and page and save.resolve() == page.resolve():
        raise SitectlError("--save and --markdown name one file", fix="name two", status=Exit.USAGE)
    if saved:
        _refuse_ignored({"--refresh": refresh, "--config-file": config_file, "--since": since})
        preview = saved_previews.read(saved, site=site)
    else:
        file = config_file or checkout.site_files(context.project, [site])[site]
        with context.progress.layer(f"preview {site}"):
            preview = engine.preview(context.project, site, refresh=refresh, config_file=config_file)
        preview["proofs"] = proofs.texts_of_file(file)
        preview["cold_starts"] = cold_starts.of_file(file)
        preview["warnings"] = warned.of_file(file, context.project, preview)
        preview |= both_sides.of_file(context.project, file, since)
        if refresh:
            preview["foreign"] = live_objects.records(context.project, site, file, preview)
    kept_files.write(save, json.dumps(preview, indent=1, sort_keys=True) + "\n", private=True)
    site_report = report.of_preview_document(site, preview)
    kept_files.write(page, markdown.document([site_report]))
    context.say(words.plan(site_report), site_report.record())
    if site_report.errors:
        return int(Exit.REFUSED)
    refused = refuse and site_report.worst is not None and site_report.worst <= Severity[refuse.upper()]
    return int(Exit.REFUSED if refused else Exit.OK)


def _refuse_ignored(given: Mapping[str, object]) -> None:
    """Raise SitectlError for what --from would ignore: a saved preview is read as it is."""
    if ignored := [option for option, value in given.items() if value not in (None, False)]:
        raise SitectlError(
            f"{', '.join(ignored)}: not with --from, which reads a preview that was saved",
            fix=f"leave out --from, or {', '.join(ignored)}",
            status=Exit.USAGE,
        )
