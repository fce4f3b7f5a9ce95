"""`bundle push`: the images of a packed folder, into the site's registry."""

from __future__ import annotations

from pathlib import Path

import click

from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.image_folder import ImageFolder
from bundle.inventory import read_inventory
from bundle.mirror_paths import require_own_paths
from bundle.supplies import IMAGES
from floor.counts import counted
from sitectl.commands.bundle.fetch import program_of, unable
from sitectl.shell.command import PATH, Command, CommandContext, pass_context
from sitectl.shell.errors import Exit, SitectlError
from sitectl.shell.registry_address import FORM, REGISTRY

MORE = """\
Under the paths that machines ask a mirror of all registries for: docker.io/vllm/vllm-openai:v0.32.0 becomes
HOST/vllm/vllm-openai:v0.32.0. The machines' side of it is cluster.machines.registries.mirrors, "*" with skip_fallback.
With a PREFIX they need override_path and endpoints: [https://HOST/v2/PREFIX]. What the registry has already is not
sent again.

--plain-http is for a registry without TLS; one on this machine does not need it. Nothing is protected on the way then,
passwords included, and crane believes any certificate.

\b
  crane auth login registry.site.example
  python -m sitectl bundle push /media/disk/berlin --to registry.site.example
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("folder", type=PATH, metavar="FOLDER", help="folder that `bundle pack` wrote")
@click.option("--to", "mirror", type=REGISTRY, required=True, metavar=FORM, help="the site's registry")
@click.option("--plain-http", is_flag=True, help="the registry has no TLS, or a certificate that is not trusted here")
@click.option("--crane", "program", default="crane", metavar="PROGRAM", help="the crane program (the one on PATH)")
@pass_context
def command(context: CommandContext, *, folder: Path, mirror: str, plain_http: bool, program: str) -> int:
    crane, images = Crane(program_of(program), plain_http=plain_http), ImageFolder(folder / IMAGES)
    try:
        inventory = read_inventory(folder)
        require_own_paths(inventory.references)
        for number, image in enumerate(inventory.references, start=1):
            context.progress.note(f"{number}/{len(inventory.images)}: {image.held_by(mirror).tagged}")
            if wrong := next(images.problems(image), None):
                raise SitectlError(wrong, fix=f"sitectl bundle verify {folder} lists all", status=Exit.REFUSED)
            crane.push(images.of(image), image.held_by(mirror))
    except BundleError as error:
        raise unable(error) from None
    context.say(f"{counted(len(inventory.images), 'image')} in {mirror}", {"images": list(inventory.images)})
    return 0
