"""`render`: what a site declares, as files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sitectl import checkout, manifests_folder
from sitectl.errors import Exit, SitectlError

HELP = "write what a site declares into a folder, one file an object, without secrets"
MORE = """\
Runs the real program without engine, cluster or network. The same site gives the same bytes. Secrets are `[secret]`,
what only `up` can know is `[known after up]`. Custom resource definitions are left out: they are pinned by digest
(see `versions`).

  python -m sitectl render berlin --out /tmp/rendered      files below /tmp/rendered/berlin
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", nargs="*", metavar="SITE", help="names of sites (default: all)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write DIR/SITE/... into")


def run(context: Any, arguments: argparse.Namespace) -> int:
    project = context.project
    files = checkout.site_files(project, arguments.site)
    with context.progress.layer(f"render {len(files)} site(s)"):
        declared = checkout.declare(project, files, context.progress)
    lines: list[str] = []
    records: dict[str, Any] = {}
    failed = False
    for site, one in declared.items():
        if one.error:
            failed = True
            lines.append(f"{site}: not rendered\n{one.error}")
            records[site] = {"error": one.error}
            continue
        texts = manifests_folder.contents(one.resources)
        manifests_folder.write(arguments.out / site, texts)
        lines.append(f"{site}: {len(texts)} files in {arguments.out / site}")
        records[site] = {"folder": str(arguments.out / site), "files": sorted(texts)}
    if not declared:
        raise SitectlError("there is no site yet", fix="python -m sitectl init NAME", status=Exit.REFUSED)
    context.say("\n".join(lines), records)
    return int(Exit.REFUSED if failed else Exit.OK)
