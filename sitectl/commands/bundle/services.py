"""`bundle services`: images of the platform's own services, built and locked."""

from __future__ import annotations

from dataclasses import replace

import click

from bundle.asking import Asking, WaitingTimes
from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.locked_images import Registries
from bundle.service_images import ServiceImages
from bundle.supplies import BUILT
from floor.images import ImageReference, image_reference
from sitectl.commands.bundle.fetch import program_of, unable
from sitectl.commands.bundle.waiting import waits
from sitectl.shell import whole_files
from sitectl.shell.command import Command, CommandContext, pass_context
from sitectl.shell.registry_address import FORM, REGISTRY
from stacks.facts import versions
from stacks.facts.image_lock import FILE, read_image_lock
from stacks.facts.own_images import PYTHON_SERVICES, SERVICES, is_built_here

MORE = f"""\
Builds an OCI layout per service into {BUILT}, where `bundle pack` takes it from, and writes the digests into {FILE}:
commit that file. No container engine is needed. The same sources, requirements.lock, base image and version of Go give
the same digest on every machine, so call this again after a change of services/ or of these: where the lock has
another digest, that of the new image takes its place. A call in CI that changes {FILE} shows that it is behind.

The gatekeeper is compiled by the Go that stacks/facts/versions.yaml pins; another one fetches it (GOPROXY). The others
get their packages from pip's index, and are put on the Python image that is pinned there: its digest is locked too, and
crane pulls it.

\b
  python -m sitectl bundle services                    all of them
  python -m sitectl bundle services gatekeeper ledger  these alone
  python -m sitectl bundle services --to registry.site.example/inference

--to also pushes them, to HOST/PREFIX/NAME:TAG, for a site whose nodes pull from there, and prints what to write into
stacks/facts/versions.yaml. A site with a mirror of all registries gets them by `bundle push` with the rest, or alone by
--to MIRROR/inference-platform, and its pins stay as they are.
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("services", type=click.Choice(SERVICES), nargs=-1, metavar="[NAME]...", help="services (default: all)")
@click.option("--from", "mirror", type=REGISTRY, metavar=FORM, help="a registry that has all images by their paths")
@click.option("--to", "target", type=REGISTRY, metavar=FORM, help="a registry to push them to as well")
@click.option("--go", default="go", metavar="PROGRAM", help="the go program (the one on PATH)")
@click.option("--crane", "program", default="crane", metavar="PROGRAM", help="the crane program (the one on PATH)")
@click.option("--plain-http", is_flag=True, help="registries have no TLS, or a certificate that is not trusted here")
@waits
@pass_context
def command(
    context: CommandContext,
    *,
    services: tuple[str, ...],
    mirror: str | None,
    target: str | None,
    go: str,
    program: str,
    plain_http: bool,
    timeout: float,
    total_timeout: float,
) -> int:
    project, pins, note = context.project, versions.load(), context.progress.note
    names = [name for name in SERVICES if name in services or not services]
    crane = Crane(program_of(program), plain_http=plain_http)
    asking = Asking(WaitingTimes(answer_s=timeout, total_s=total_timeout), note)
    base = image_reference(pins.images.python)
    before = lock = read_image_lock(project)
    pinned = {name: image_reference(getattr(pins.images, name)) for name in names}
    try:
        if not {*names}.isdisjoint(PYTHON_SERVICES):
            lock = Registries(crane=crane, asking=asking, mirror=mirror).locked([base], lock)
        images = ServiceImages(
            project=project,
            go=program_of(go),
            go_version=pins.go,
            base=replace(base, digest=lock.digests.get(base.tagged, "")),
            crane=crane,
            mirror=mirror,
            note=note,
        )
        built = {name: images.build(name, replace(pin, digest="")) for name, pin in pinned.items()}
        pushed = {name: _pushed(name, image, target) for name, image in built.items()} if target else {}
        # A pin of another registry's copy has what this call puts there. Before any push, so that a push that fails
        # leaves nothing in a registry that no lock has.
        there = {image.tagged for image in pushed.values()}
        lock = lock.with_images(i for i in built.values() if is_built_here(i.name) or i.tagged in there)
        if lock != before:
            whole_files.write(project / FILE, lock.text())
        for name, image in pushed.items():
            note(f"{image}: pushing")
            crane.push(images.images.of(built[name]), image)
    except BundleError as error:
        raise unable(error) from None
    shown = pushed or built
    lines = [*map(str, shown.values()), f"{FILE}: as before" if lock == before else f"commit {FILE}"]
    if new := [name for name, image in pushed.items() if not _is_named(image, built[name])]:
        lines.append("next, where sites name them there: in stacks/facts/versions.yaml, below images")
        lines += [f"  {name}: {pushed[name]}" for name in new]
    record = {"images": {name: str(image) for name, image in shown.items()}, "lock_changed": lock != before}
    context.say("\n".join(lines), record)
    return 0


def _pushed(name: str, built: ImageReference, target: str) -> ImageReference:
    return replace(ImageReference("", name, built.tag).held_by(target), digest=built.digest)


def _is_named(image: ImageReference, pin: ImageReference) -> bool:
    """Whether nodes pull this by the pin, from its registry or a mirror of all registries."""
    return image.tagged == pin.tagged or f"/{image.path}".endswith(f"/{pin.path}")
