"""The head of each site's audit of keys, as evidence of the day: a file for programs and a page for people.

It runs the live check that reads the whole audit, so it holds the sites' credentials, and no token of the forge. Keep
the artifact where no password of a site's database reaches. `python -m ci.evidence --out DIR`

SITE_KUBECONFIGS: as `python -m ci.previews` has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from ci.previews import place_kubeconfig
from floor import command_line
from floor.problems import SiteError
from sitectl.offline import checkout
from sitectl.shell import project_folder
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.site_plan import plan_file

_CHECK = "audit_of_keys"
_FOLDER = click.Path(path_type=Path)
# pytest's own status of a check that failed; every other one means that it was not made.
_FAILED = {0: Exit.OK, 1: Exit.REFUSED}


@click.command(cls=command_line.Command, help=__doc__)
@click.option("--out", type=_FOLDER, required=True, metavar="DIR", help="folder with one folder a site")
@click.option("--project", "checkout_folder", type=_FOLDER, default=Path.cwd, metavar="DIR", help="the checkout")
@click.option("--site", "sites", multiple=True, metavar="SITE", help="this site alone; may be repeated")
@click.pass_obj
def command(environment: Mapping[str, str], *, out: Path, checkout_folder: Path, sites: tuple[str, ...]) -> int:
    project = project_folder.find(checkout_folder.resolve())
    worst = Exit.OK
    for site, file in checkout.site_files(project, sites).items():
        try:
            if not plan_file(file).site.has_directory:
                print(f"{site}: has no directory of keys, and so no audit of them", flush=True)
                continue
            place_kubeconfig(project, site, file, environment)
            worst = max(worst, _checked(project, site, file, out.resolve() / site))
        except (SitectlError, SiteError) as error:
            worst = Exit.UNABLE
            print(f"{site}: {error}", file=sys.stderr, flush=True)
    return int(worst)


def main(argv: list[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Look at each site, also after one has failed; the worst status of them."""
    return command_line.run(command, argv, name="python -m ci.evidence", obj=environment)


def _checked(project: Path, site: str, file: Path, folder: Path) -> Exit:
    words = ["tests/live", "-q", "-p", "no:cacheprovider", "-k", _CHECK, "--site", site, "--stack-file", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--evidence", str(folder)],
        cwd=project,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return _FAILED.get(done.returncode, Exit.UNABLE)


if __name__ == "__main__":
    sys.exit(main())
