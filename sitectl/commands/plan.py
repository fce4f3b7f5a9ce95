"""`plan`: what `pulumi up` would do to a site, for people."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sitectl import (
    checkout,
    engine,
    headroom,
    kept_files,
    live_objects,
    markdown,
    proofs,
    report,
    saved_previews,
    warned,
    words,
)
from sitectl.errors import Exit, SitectlError
from sitectl.verdicts.model import Severity

MORE = """\
Runs `pulumi preview --json` for the site's stack, so it needs the engine, its state and the cluster; or reads a
saved preview. Each row shows what happens, the reason for its severity, and which tenants it affects.

  python -m sitectl plan berlin
  python -m sitectl plan berlin --from preview.json     a saved one
  python -m sitectl plan berlin --refuse irreversible   1 if anything is lost

--from reads what --save wrote, or `pulumi preview --json > preview.json`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", metavar="SITE", help="name of the site, which is its stack")
    parser.add_argument("--from", dest="file", type=Path, metavar="FILE", help="a saved `pulumi preview --json`")
    parser.add_argument("--refresh", action="store_true", help="read the cluster first, so that drift shows")
    parser.add_argument("--config-file", type=Path, metavar="FILE", help="the stack file, if it is another one")
    parser.add_argument(
        "--since", metavar="REVISION", help="SLO headroom against the site at this revision (default: the last commit)"
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the engine's preview, for --from")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write it as Markdown that is safe to post")
    parser.add_argument(
        "--refuse",
        choices=[severity.name.lower() for severity in Severity if severity is not Severity.LIVE],
        help="exit status 1 if a change is this severe or worse",
    )


def run(context: Any, arguments: argparse.Namespace) -> int:
    kept_files.preview_file("--save", arguments.save)
    kept_files.markdown_file("--markdown", arguments.markdown)
    if arguments.save and arguments.markdown and arguments.save.resolve() == arguments.markdown.resolve():
        raise SitectlError("--save and --markdown name one file", fix="name two", status=Exit.USAGE)
    if arguments.file:
        _refuse_options_of_a_new_preview(arguments)
        preview = saved_previews.read(arguments.file, site=arguments.site)
    else:
        file = arguments.config_file or checkout.site_files(context.project, [arguments.site])[arguments.site]
        with context.progress.layer(f"preview {arguments.site}"):
            preview = engine.preview(
                context.project, arguments.site, refresh=arguments.refresh, config_file=arguments.config_file
            )
        preview["proofs"] = proofs.texts_of_file(file)
        preview["warnings"] = warned.of_file(file, context.project)
        preview["headroom"] = headroom.of_file(context.project, file, arguments.since)
        if arguments.refresh:
            preview["foreign"] = live_objects.records(context.project, arguments.site, file, preview)
    kept_files.write(arguments.save, json.dumps(preview, indent=1, sort_keys=True) + "\n", private=True)
    one = report.of_preview_document(arguments.site, preview)
    kept_files.write(arguments.markdown, markdown.document([one]))
    context.say(words.plan(one), one.record())
    if one.errors:
        return int(Exit.REFUSED)
    refused = arguments.refuse and one.worst is not None and one.worst <= Severity[arguments.refuse.upper()]
    return int(Exit.REFUSED if refused else Exit.OK)


def _refuse_options_of_a_new_preview(arguments: argparse.Namespace) -> None:
    """Raise SitectlError for what --from would ignore: a saved preview is read as it is."""
    given = {
        "--refresh": arguments.refresh,
        "--config-file": arguments.config_file is not None,
        "--since": arguments.since is not None,
    }
    if ignored := [option for option, is_given in given.items() if is_given]:
        raise SitectlError(
            f"{', '.join(ignored)}: not with --from, which reads a preview that was saved",
            fix=f"leave out --from, or {', '.join(ignored)}",
            status=Exit.USAGE,
        )
