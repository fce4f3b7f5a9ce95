"""`bundle list`: what sites take from outside."""

from __future__ import annotations

from dataclasses import replace

import click

from bundle.errors import BundleError
from bundle.mirror_list import TOOLS, Tool, mirror_list
from bundle.supplies import COMMANDS, Supplies
from services.weights.pace import size
from sitectl.commands.bundle.fetch import unable
from sitectl.offline.supplied import chart_digests, supplied
from sitectl.shell.command import Command, CommandContext, pass_context, sites_argument
from sitectl.shell.registry_address import FORM, REGISTRY

MORE = """\
\b
  python -m sitectl bundle list berlin                     for people
  python -m sitectl bundle list --for crane --to registry.site.example | sh
  python -m sitectl bundle list --for hf | sh              weights, into the form that `bundle pack` gives them

Needs no network. What --for prints is commands for a shell, which ends at the first that fails. An image without a
digest is not in images.lock yet: python -m sitectl bundle lock
"""


@click.command(cls=Command, epilog=MORE)
@sites_argument
@click.option("--for", "tool", type=click.Choice(TOOLS), help="print the commands of this copy tool instead")
@click.option(
    "--to",
    "mirror",
    default="registry.site.example",
    show_default=True,
    type=REGISTRY,
    metavar=FORM,
    help="registry that crane, skopeo and oras copy to",
)
@pass_context
def command(context: CommandContext, *, sites: tuple[str, ...], tool: Tool | None, mirror: str) -> int:
    known = supplied(context, sites).supplies
    try:
        text = mirror_list(known, tool, mirror) if tool else "\n".join(_lines(known, chart_digests(context.project)))
    except BundleError as error:
        raise unable(error) from None
    context.say(text, _record(known))
    return 0


def _lines(supplies: Supplies, digests: dict[str, str]) -> list[str]:
    lines = [f"images: {len(supplies.images)}"]
    for image in supplies.images:
        lines.append(
            f"  {image if image.digest else f'{image}   no digest'}   {', '.join(supplies.used_by[image.tagged])}"
        )
    lines.append(f"charts, definitions and pod network: {len(supplies.charts)}")
    lines += [
        f"  {packed.file}   {packed.published}{'   locked' if packed.file in digests else ''}"
        for packed in supplies.charts
    ]
    lines.append(f"weights: {len(supplies.weights) + len(supplies.unlocked_weights)}")
    lines += [f"  {entry.repository} at {entry.revision}   {size(entry.size)}" for entry in supplies.weights]
    lines += [f"  {repository} at {revision}   no lock" for repository, revision in supplies.unlocked_weights]
    lines.append(f"Python packages: {len(supplies.packages)}, by requirements.lock")
    plugins = [f"{plugin.key} {plugin.version}" for plugin in supplies.plugins]
    lines.append(f"programs: {', '.join(COMMANDS)}; plugins of pulumi: {', '.join(plugins) or 'none'}")
    if supplies.talos:
        lines.append(f"Talos {supplies.talos}; in the installers: {', '.join(supplies.extensions) or 'no extension'}")
    lines += [
        f"  schematic {image.schematic.id}   {image.factory}   {image.some_machines}"
        for image in supplies.factory_images
    ]
    return lines


def _record(supplies: Supplies) -> dict[str, object]:
    return {
        "images": [
            {
                "image": str(replace(image, digest="")),
                "digest": image.digest or None,
                "used_by": supplies.used_by[image.tagged],
            }
            for image in supplies.images
        ],
        "charts": [{"file": packed.file, "source": packed.published} for packed in supplies.charts],
        "weights": [
            *(
                {"repository": entry.repository, "revision": entry.revision, "bytes": entry.size}
                for entry in supplies.weights
            ),
            *(
                {"repository": repository, "revision": revision, "bytes": None}
                for repository, revision in supplies.unlocked_weights
            ),
        ],
        "programs": list(COMMANDS),
        "plugins": {plugin.key: plugin.version for plugin in supplies.plugins},
        "packages": {package.name: package.version for package in supplies.packages},
        "talos": supplies.talos,
        "extensions": list(supplies.extensions),
        "schematics": [
            {"id": image.schematic.id, "factory": image.factory, "machines": list(image.machines)}
            for image in supplies.factory_images
        ],
    }
