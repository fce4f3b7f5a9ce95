"""`bundle lock`: the digest of every image that sites run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import click

from bundle.asking import Asking, WaitingTimes
from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.helm import Helm
from bundle.locked_images import PLATFORM, Registries
from bundle.schematics import FactoryImage, make_known, post_command
from floor.counts import counted
from floor.images import ImageReference
from sitectl.commands.bundle.fetch import given_mirror, program_of, unable
from sitectl.commands.bundle.waiting import waits
from sitectl.offline import checkout
from sitectl.offline.rendered_charts import rendered_images
from sitectl.offline.supplied import Supplied, sources_of, supplied
from sitectl.shell import invocation, whole_files
from sitectl.shell.command import Command, CommandContext, pass_context, sites_argument
from sitectl.shell.registry_address import FORM, REGISTRY
from stacks.facts import versions
from stacks.facts.image_lock import FILE, ChartRelease, ImageLock

MORE = """\
Collects the images that machines, charts and pods of the sites run, and asks each registry for the digest of its tag,
by crane. A line that is there is never changed: a tag that moved stays as it was locked, and a part that names its
image by another digest than the locked one is refused. With `images.locked: true` a site's pods run these digests, and
an image that is not in the lock fails preview. Charts of which stacks/facts/chart_images.yaml does not know every tag
are rendered by helm, with the values of the site.

A factory that builds installers of machines is first made to know their schematics, as far as the installers are not in
the lock yet. With --from it is not asked: the registry has them. New machines that boot from a factory of your own need
its schematics all the same, so the output has the command for each. A factory builds an installer when it is first
asked for it, which can take longer than --timeout.

\b
  python -m sitectl bundle lock                 of all sites of the folder
  python -m sitectl bundle lock berlin --from registry.site.example

Commit images.lock. A new version of a part has a new tag, so call this again after raising a pin; --prune removes the
lines that no site of the folder needs any more. The pods of the step before may still run these: prune later.
"""


@click.command(cls=Command, epilog=MORE)
@sites_argument
@click.option("--from", "mirror", type=REGISTRY, metavar=FORM, help="a registry that has all images by their paths")
@click.option(
    "--platform",
    default=PLATFORM,
    show_default=True,
    metavar="OS/ARCH",
    help="of the nodes, where a tag has several images",
)
@click.option("--prune", is_flag=True, help="remove lines that no site of the folder needs")
@click.option("--crane", "program", default="crane", metavar="PROGRAM", help="the crane program (the one on PATH)")
@click.option("--charts-from", metavar="ADDRESS", help="a place that has all charts (default: publishers)")
@click.option("--helm", default="helm", metavar="PROGRAM", help="the helm program (the one on PATH)")
@waits
@pass_context
def command(
    context: CommandContext,
    *,
    sites: tuple[str, ...],
    mirror: str | None,
    platform: str,
    prune: bool,
    program: str,
    charts_from: str | None,
    helm: str,
    timeout: float,
    total_timeout: float,
) -> int:
    checkout.chosen_sites(context.project, sites)
    # A line that one site does not need may be another's.
    known = supplied(context, () if prune else sites)
    asking = Asking(WaitingTimes(answer_s=timeout, total_s=total_timeout), context.progress.note)
    registries = Registries(
        crane=Crane(program_of(program)),
        asking=asking,
        mirror=mirror,
        platform=platform,
    )
    new = [image for image in known.supplies.factory_images if not image.installer.digest]
    named = [image for image in known.supplies.images if image.tagged in known.named]
    try:
        if mirror is None:
            make_known(new, context.progress.note)
        rendered = _rendered(
            context, known, charts_from, Helm(program_of(helm), context.project, "--charts-from"), asking
        )
        needed = [*named, *rendered]
        lock = registries.locked(needed, known.lock)
    except BundleError as error:
        raise unable(error) from None
    unused = sorted(set(lock.digests) - {image.tagged for image in needed}) if prune else []
    releases = {image.tagged: charts for image, charts in rendered.items()}
    kept = lock.without(unused)
    lock = ImageLock(kept.digests, {} if prune else kept.renderings).with_renderings(releases)
    added = [str(image) for image in lock.images if str(image) not in {str(old) for old in known.lock.images}]
    if lock != known.lock:
        whole_files.write(context.project / FILE, lock.text())
    again = [name for name in known.lock.digests if lock.renderings.get(name) != known.lock.renderings.get(name)]
    lines = [
        *(f"+ {image}" for image in added),
        *(f"- {image}" for image in unused),
        *(f"  {name}: of {', '.join(map(str, sorted(lock.renderings[name])))}" for name in again if name in releases),
    ]
    if not lines:
        lines.append(f"{FILE}: as before, {counted(len(lock.digests), 'image')}")
    else:
        lines.append(f"commit {FILE}, {counted(len(lock.digests), 'image')}")
        if len(sites) == 1:
            lines.append(invocation.next_step("plan", sites, context.named))
    not_asked = [] if mirror is None else new
    for image in not_asked:
        lines += [
            f"not asked: {image.factory}, which boots {image.some_machines} only if it knows their schematic; next:",
            f"  {post_command(image)}",
        ]
    record = {
        "added": added,
        "removed": unused,
        "images": [str(image) for image in lock.images],
        "factories_not_asked": [_not_asked(image) for image in not_asked],
    }
    context.say("\n".join(lines), record)
    return 0


def _not_asked(image: FactoryImage) -> dict[str, Any]:
    """What a factory may lack, and the command that gives it."""
    return {
        "factory": image.factory,
        "schematic": image.schematic.id,
        "machines": list(image.machines),
        "command": post_command(image),
    }


def _rendered(
    context: CommandContext, known: Supplied, charts_from: str | None, helm: Helm, asking: Asking
) -> Mapping[ImageReference, set[ChartRelease]]:
    """Images that renderings name, and the charts of each."""
    charts = None if charts_from is None else given_mirror(charts_from, "--charts-from")
    images = defaultdict[ImageReference, set[ChartRelease]](set)
    for name, plan in known.plans.items():
        sources = sources_of(plan.site, helm, charts, asking, versions.load())
        for image, releases in rendered_images(plan, known.releases[name], sources, context.project).items():
            images[image] |= releases
    return images
