"""`bundle sbom`: a bill of materials of what sites take from outside."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bundle.sbom import sbom
from sitectl.offline.supplied import chart_digests, supplied
from sitectl.shell import whole_files
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, sites_argument

MORE = """\
CycloneDX 1.6: images with digest and package URL, charts, Python packages, programs and plugins, weights with commit
and the digest of their lock, Talos and the extensions in its installers. The same site and locks give the same bytes.
It does not look inside of images: scan those of a packed folder.

\b
  python -m sitectl bundle sbom berlin --out berlin.cdx.json
"""


@click.command(cls=Command, epilog=MORE)
@sites_argument
@click.option("--out", type=PATH, metavar="FILE", help="write into this file instead of stdout")
@pass_context
def command(context: CommandContext, *, sites: tuple[str, ...], out: Path | None) -> int:
    text = sbom(supplied(context, sites).supplies, chart_digests(context.project))
    if out is None:
        context.say(text, json.loads(text))
        return 0
    whole_files.write(out, text)
    context.say(f"{out}: {len(json.loads(text)['components'])} components", {"written": [str(out)]})
    return 0
