"""`render`: what a site declares, as files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from floor.counts import counted
from sitectl import checkout, manifests_folder
from sitectl.checkout import Declared, Told

MORE = """\
Runs the real program without engine, cluster or network. The same site gives the same bytes. Secrets have no
values and a note about that; a value that only `up` can know is `[known after up]`. CRDs are left out: they are pinned
by digest (see `versions`). Resources that are not Kubernetes objects are in the folder `program`.

  python -m sitectl render berlin --out /tmp/out    files below /tmp/out/berlin
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", nargs="*", metavar="SITE", help="names of sites (default: all)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write DIR/SITE/... into")


def run(context: Any, arguments: argparse.Namespace) -> int:
    project = context.project
    out: Path = arguments.out

    def write(site: str, one: Declared) -> Told:
        texts = manifests_folder.contents(one.resources)
        manifests_folder.write(out / site, texts)
        return Told(
            lines=[f"{site}: {counted(len(texts), 'file')} in {out / site}"],
            record={"folder": str(out / site), "files": sorted(texts)},
        )

    files = checkout.chosen_sites(project, arguments.site)
    told = checkout.tell_declared(project, files, context.progress, write, without="")
    context.say("\n".join(told.lines), told.records)
    return told.status
