"""`bundle verify`: whether a packed folder is whole and has what sites need."""

from __future__ import annotations

from pathlib import Path

import click

from bundle.errors import BundleError
from bundle.inventory import FILE, missing, read_inventory, spoiled
from floor.counts import counted
from floor.digests import sha256_of
from sitectl.commands.bundle.fetch import unable
from sitectl.offline.supplied import chart_digests, require_locked, supplied
from sitectl.shell.command import PATH, Command, CommandContext, pass_context
from sitectl.shell.errors import Exit, SitectlError

MORE = """\
Needs no network. Reads every file, and compares it with bundle.json and with images.lock, charts.sha256,
requirements.lock and the locks of weights of this checkout; then whether the sites that it was packed for need more
than it has. Weights and packages that no lock lists are refused, and programs and files below boot/ that bundle.json
does not list. Programs and boot media are in no lock: bundle.json alone lists them, so compare its sha256 with the one
that `pack` printed before you use them.

\b
  python -m sitectl bundle verify /media/disk/berlin
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("folder", type=PATH, metavar="FOLDER", help="folder that `bundle pack` wrote")
@pass_context
def command(context: CommandContext, *, folder: Path) -> int:
    try:
        inventory = read_inventory(folder)
    except BundleError as error:
        raise unable(error) from None
    known = supplied(context, inventory.sites)
    require_locked(known)
    supplies, digests = known.supplies, chart_digests(context.project)
    wrong = [*missing(inventory, supplies), *spoiled(folder, inventory, supplies, digests, context.progress.note)]
    if wrong:
        raise SitectlError(
            "\n  ".join([f"{folder}: {counted(len(wrong), 'thing')} not as locked", *wrong]),
            fix=f"sitectl bundle pack {' '.join([*inventory.sites, '--out', str(folder), *inventory.options])}, on a "
            f"machine with a network: it fetches these alone; remove by hand what {FILE} does not list",
            status=Exit.REFUSED,
        )
    digest = sha256_of(folder / FILE)
    programs = "no programs" if inventory.programs is None else counted(len(inventory.programs), "program")
    text = f"{folder}: whole, for {', '.join(inventory.sites)}: {counted(len(inventory.images), 'image')}, {programs}"
    context.say(
        f"{text}\nsha256 of {FILE}: {digest}",
        {"sites": list(inventory.sites), "images": list(inventory.images), "sha256": digest},
    )
    return 0
