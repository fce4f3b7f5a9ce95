"""`bundle pack`: everything that sites take from outside, in one folder."""

from __future__ import annotations

import os
from pathlib import Path

import click

from bundle.asking import Asking, WaitingTimes
from bundle.boot_media import KINDS, Kind
from bundle.carried_programs import OwnPrograms
from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.helm import Helm
from bundle.inventory import FILE
from bundle.packing import Packer
from bundle.supplies import COMMANDS
from floor.counts import counted
from floor.digests import sha256_of
from floor.model_hub import HUB
from services.weights.pace import size
from sitectl.commands.bundle.fetch import given_mirror, program_of, unable
from sitectl.commands.bundle.waiting import waits
from sitectl.offline.supplied import chart_digests, require_locked, sources_of, supplied
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, sites_argument
from sitectl.shell.registry_address import FORM, REGISTRY
from stacks.facts import versions

MORE = """\
The folder then has

\b
  images/     an OCI layout per image, by its locked digest
  charts/     charts, definitions and Cilium, as `bundle --from` takes them
  wheels/     the files of requirements.lock, for `pip install --no-index`
  programs/   pulumi with its host of Python programs and its plugins, helm, crane
  boot/       with --boot-media, per schematic and Talos version: an ISO, or kernel, initramfs and command line for PXE
  weights/    a folder per repository, which can be a model's volume as it is
  bundle.json written last: with it the folder is whole

What is there and whole is not fetched again, but for charts, which are small: after a failure, or for a new version,
call this again, with the same options: programs and boot media that a call leaves out are removed. Images, packages and
weights are compared with their locks, so images.lock and the locks of weights must be there first; charts with
charts.sha256 where it lists them; definitions and Cilium with their pins, as helm renders them out of the folder.

Images come from their registries, installers of machines from the image factory, which is made to know their schematics
first; with --from both come from that registry. Weights come from HF_ENDPOINT or the hub (HF_TOKEN
opens gated ones), packages from pip's index.

Programs are copies of those that run on this machine, for another one of the same system and CPU: those on PATH, or
that options name, and the plugins of requirements.lock out of PULUMI_HOME or ~/.pulumi. --without-programs leaves them
out, where the machine behind the wall has them.

\b
  python -m sitectl bundle pack berlin --out /media/disk/berlin
"""


@click.command(cls=Command, epilog=MORE)
@sites_argument
@click.option("--out", type=PATH, required=True, metavar="FOLDER", help="folder to write, or to go on with")
@click.option("--from", "mirror", type=REGISTRY, metavar=FORM, help="a registry that has all images by their paths")
@click.option("--charts-from", metavar="ADDRESS", help="a place that has all charts (default: publishers)")
@click.option("--crane", default="crane", metavar="PROGRAM", help="the crane program (the one on PATH)")
@click.option("--helm", default="helm", metavar="PROGRAM", help="the helm program (the one on PATH)")
@click.option("--pulumi", default="pulumi", metavar="PROGRAM", help="the pulumi program to copy (the one on PATH)")
@click.option(
    "--boot-media",
    type=click.Choice(KINDS),
    default="none",
    show_default=True,
    help="what new machines boot from, as the image factory builds it (also with --from)",
)
@waits
@click.option("--without-programs", is_flag=True, help="copy no programs and plugins of this machine")
@pass_context
def command(
    context: CommandContext,
    *,
    sites: tuple[str, ...],
    out: Path,
    mirror: str | None,
    charts_from: str | None,
    crane: str,
    helm: str,
    pulumi: str,
    boot_media: Kind,
    without_programs: bool,
    timeout: float,
    total_timeout: float,
) -> int:
    project = context.project
    known = supplied(context, sites)
    require_locked(known)
    charts = None if charts_from is None else given_mirror(charts_from, "--charts-from")
    asking = Asking(WaitingTimes(answer_s=timeout, total_s=total_timeout), context.progress.note)
    program = Helm(program_of(helm), project, "--charts-from")
    sources = [sources_of(plan.site, program, charts, asking, versions.load()) for plan in known.plans.values()]
    own = OwnPrograms(
        pulumi=program_of(pulumi),
        helm=program_of(helm),
        crane=program_of(crane),
        plugins=Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi") / "plugins",
    )
    packer = Packer(
        folder=out,
        crane=Crane(program_of(crane)),
        image_mirror=mirror,
        chart_digests=chart_digests(project),
        hub=os.environ.get("HF_ENDPOINT") or HUB,
        token=os.environ.get("HF_TOKEN", "").strip(),
        programs=None if without_programs else own,
        boot_media=boot_media,
        note=context.progress.note,
    )
    try:
        packer.pack(known.supplies, sources, project)
    except BundleError as error:
        raise unable(error) from None
    supplies, digest = known.supplies, sha256_of(out / FILE)
    programs = "no programs" if without_programs else counted(len(COMMANDS) + len(supplies.plugins), "program")
    text = (
        f"{out}: {counted(len(supplies.images), 'image')}, {counted(len(supplies.charts), 'chart file')}, "
        f"{counted(len(supplies.packages), 'package')}, {counted(len(supplies.weights), 'revision')} of weights "
        f"({size(sum(manifest.size for manifest in supplies.weights))}), {programs}"
        f"\nsha256 of {FILE}: {digest}"
    )
    record = {"folder": str(out), "sha256": digest}
    context.say(f"{text}\nnext: carry it over, then: sitectl bundle verify {out}", record)
    return 0
