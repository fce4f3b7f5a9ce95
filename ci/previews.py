"""The trusted job's first half: the engine's preview of every site, saved for the job that posts them.

It holds the sites' credentials and no token of the forge; it runs the code of the change. The job that posts holds the
token and runs the code of the target branch. `python -m ci.previews --out DIR [--base REV] [--refresh]`

SITE_KUBECONFIGS: JSON of site -> text of its kubeconfig, written to where the site's file states.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from floor import command_line
from floor.problems import SiteError
from sitectl.change import cold_starts
from sitectl.change.previews_folder import SUFFIX, failed
from sitectl.live import engine, live_objects
from sitectl.offline import both_sides, checkout, warned
from sitectl.offline.proofs import texts_of_file
from sitectl.shell import project_folder, revisions, whole_files
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.site_plan import plan_file

VARIABLE = "SITE_KUBECONFIGS"
_FOLDER = click.Path(path_type=Path)


@click.command(cls=command_line.Command, help=__doc__)
@click.option("--out", type=_FOLDER, required=True, metavar="DIR", help="folder with one preview a site")
@click.option("--refresh", is_flag=True, help="look at the clusters first, so that drift shows")
@click.option("--base", metavar="REV", help="SLO headroom and machines against the sites at this revision")
@click.option("--project", "checkout_folder", type=_FOLDER, default=Path.cwd, metavar="DIR", help="the checkout")
@click.option("--site", "sites", multiple=True, metavar="SITE", help="this site alone; may be repeated")
@click.pass_obj
def command(
    environment: Mapping[str, str],
    *,
    out: Path,
    refresh: bool,
    base: str | None,
    checkout_folder: Path,
    sites: tuple[str, ...],
) -> int:
    project = project_folder.find(checkout_folder.resolve())
    out.mkdir(parents=True, exist_ok=True)
    if base:
        try:
            revisions.text(project, base, project_folder.PROJECT_FILE)
        except SitectlError as error:
            print(error.text(), file=sys.stderr)
            return int(error.status)
    worst = Exit.OK
    for site, file in checkout.site_files(project, sites).items():
        try:
            place_kubeconfig(project, site, file, environment)
            preview = engine.preview(project, site, refresh=refresh)
            preview["proofs"] = texts_of_file(file)
            preview["cold_starts"] = cold_starts.of_file(file)
            preview["warnings"] = warned.of_file(file, project, preview)
            preview |= both_sides.of_file(project, file, base)
            if refresh:
                preview["foreign"] = live_objects.records(project, site, file, preview)
            print(f"{site}: {preview.get('changeSummary') or 'the preview failed'}", flush=True)
        except (SitectlError, SiteError) as error:
            worst = Exit.UNABLE
            preview = failed(str(error))
            print(f"{site}: {error}", file=sys.stderr, flush=True)
        whole_files.write(out / f"{site}{SUFFIX}", json.dumps(without_outputs(preview)))
    return int(worst)


def main(argv: list[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Preview each site, also after one has failed: its failure is saved in the place of its preview."""
    return command_line.run(command, argv, name="python -m ci.previews", obj=environment)


def place_kubeconfig(project: Path, site: str, file: Path, environment: Mapping[str, str]) -> None:
    """Write the site's credentials to the path that its file names, inside of the checkout and readable by us alone."""
    try:
        given = json.loads(environment.get(VARIABLE) or "{}")
    except ValueError:
        raise SitectlError(f"{VARIABLE} is not JSON", fix='{"SITE": "text of its kubeconfig"}') from None
    if site not in given:
        return
    named = plan_file(file).site.cluster.kubeconfig
    if named is None:
        raise SitectlError(
            f"{site}: {VARIABLE} has a kubeconfig for it",
            got="a site whose cluster this program brings up",
            allowed="sites with cluster.kubeconfig; the others' credentials are in their state",
            status=Exit.REFUSED,
        )
    path = (project / named).resolve()
    if not path.is_relative_to(project.resolve()) or path.exists():
        raise SitectlError(
            f"{site}: credentials are not written to {path.name}",
            got=str(named),
            allowed="a path inside of the checkout where no file is yet",
            status=Exit.REFUSED,
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(given[site])


def without_outputs(preview: Mapping[str, object]) -> dict[str, object]:
    """A preview without the outputs of resources, which its readers do not need and an artifact should not hold."""
    steps = preview.get("steps")
    kept = []
    for step in steps if isinstance(steps, list) else []:
        sides = {
            side: {k: v for k, v in step[side].items() if k != "outputs"}
            for side in ("oldState", "newState")
            if step.get(side)
        }
        kept.append({**step, **sides})
    return {**preview, "steps": kept}


if __name__ == "__main__":
    sys.exit(main())
