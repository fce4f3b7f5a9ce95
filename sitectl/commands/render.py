"""`render`: what a site declares, as files."""

from __future__ import annotations

from pathlib import Path

import click

from floor.counts import counted
from sitectl.offline import checkout, manifests_folder
from sitectl.offline.checkout import Declared, Told
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, sites_argument

MORE = """\
Runs the real program without engine, cluster or network. The same site gives the same bytes. Secrets have no
values and a note about that; a value that only `up` can know is `[known after up]`. CRDs are left out: they are pinned
by digest (see `versions`). Resources that are not Kubernetes objects are in the folder `program`, the machines'
configs and keys in `program/machines`, with every secret masked.

\b
  python -m sitectl render berlin --out /tmp/out    files below /tmp/out/berlin
"""


@click.command(cls=Command, epilog=MORE)
@sites_argument
@click.option("--out", type=PATH, required=True, metavar="DIR", help="folder to write DIR/SITE/... into")
@pass_context
def command(context: CommandContext, *, sites: tuple[str, ...], out: Path) -> int:
    project = context.project

    def write(site: str, declared: Declared) -> Told:
        texts = manifests_folder.contents(declared.resources) | manifests_folder.machine_contents(declared.machines)
        manifests_folder.write(out / site, texts)
        return Told(
            lines=[f"{site}: {counted(len(texts), 'file')} in {out / site}"],
            record={"folder": str(out / site), "files": sorted(texts)},
        )

    files = checkout.chosen_sites(project, sites)
    report = checkout.tell_declared(project, files, context.progress, write, without="")
    context.say("\n".join(report.lines), report.records)
    return report.status
