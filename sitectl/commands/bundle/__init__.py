"""`bundle`: what sites take from outside: fetched, locked, listed, packed for a site without a network."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from sitectl.shell.command import SHARED, CommandGroup, site_names

_DEFAULT = "fetch"
_MEANINGS = {
    _DEFAULT: "fetch definitions, charts and pod network, and compare them with the pins; also without this word",
    "lock": "write the digest of every image that sites run into images.lock",
    "services": "build the images of the platform's own services, without Docker, and lock their digests",
    "list": "list what sites take from outside, as text or for a copy tool: crane, skopeo, oras, helm, hf, pip",
    "sbom": "print a bill of materials in CycloneDX's JSON",
    "pack": "write images, charts, packages, programs and weights into a folder, for a site without a network",
    "verify": "compare a packed folder with its inventory and with what the sites need",
    "push": "put the images of a packed folder into the site's registry",
}
MORE = """\
\b
  python -m sitectl bundle                what `pulumi up` needs on this machine
  python -m sitectl bundle fetch --help   its options

\b
for a site without a network, on a machine that has one:
  python -m sitectl bundle services       what this repository is the source of
  python -m sitectl bundle lock berlin    then commit images.lock
  python -m sitectl bundle pack berlin --out /media/disk/berlin

\b
and behind the wall, from the disk:
  python -m sitectl bundle verify /media/disk/berlin
  python -m sitectl bundle push /media/disk/berlin --to registry.site.example
  python -m sitectl bundle --from /media/disk/berlin/charts --charts

The whole way: python -m sitectl docs air-gap
"""


class _FetchesByDefault(CommandGroup):
    """Without the name of a command it is `fetch`, whose options come next."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = _first_own(args)
        # A shell that completes the first word of its own is offered the names of commands.
        completed = ctx.resilient_parsing and not first
        if not completed and first not in {*_MEANINGS, *ctx.help_option_names}:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, and what may come instead of `fetch`."""
        offered = super().shell_complete(ctx, incomplete)
        default = self.get_command(ctx, _DEFAULT) if incomplete.startswith("-") else None
        if default is None:
            return [*offered, *(CompletionItem(name) for name in site_names(ctx, ctx.command.params[0], incomplete))]
        there = {item.value for item in offered}
        return [*offered, *(item for item in default.shell_complete(ctx, incomplete) if item.value not in there)]


def _first_own(words: Sequence[str]) -> str:
    """The first word that is no option of all commands, nor the value of one; empty where there is none."""
    shared = {name: option for option in SHARED for name in option.opts}
    rest = iter(words)
    for word in rest:
        option = shared.get(word.partition("=")[0])
        if option is None:
            return word
        if not option.is_flag and "=" not in word:
            next(rest, "")
    return ""


command = _FetchesByDefault("bundle", package="sitectl.commands.bundle", meanings=_MEANINGS, epilog=MORE)
