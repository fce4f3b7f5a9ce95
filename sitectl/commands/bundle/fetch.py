"""`bundle fetch`: what sites install of other projects, onto this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from bundle.asking import Asking, WaitingTimes
from bundle.errors import BundleError
from bundle.fetching import Sources, write_crds, write_pod_network
from bundle.helm import Helm
from bundle.locked_charts import ChartFolder
from bundle.store import ContentStore
from components.addons.charts import checked_mirror
from components.specs.crd_bundle import CrdBundleSpec
from floor.counts import counted
from floor.problems import SiteError, WrongValueError
from sitectl.commands.bundle.waiting import waits
from sitectl.offline import checkout
from sitectl.offline.supplied import sources_of
from sitectl.shell import invocation
from sitectl.shell.command import Command, CommandContext, pass_context, sites_argument
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts import versions
from stacks.plan.charts import cilium_manifest, installed_charts
from stacks.plan.site_plan import plan_file
from stacks.site.model import SiteConfig

MORE = """\
Takes charts by helm, as their publishers offer them or from the site's charts.mirror, and files of releases by HTTPS.
Writes definitions and Cilium's manifest only if they are what stacks/facts/versions.yaml pins. What is as pinned is not
fetched again, so a second call needs no network. Commit none of it. A site that fails stops no other.

\b
  python -m sitectl bundle             for all sites of the folder
  python -m sitectl bundle berlin      for one of them
  python -m sitectl bundle --from oci://registry.site.example/charts
  python -m sitectl bundle --charts    the gateways' charts as well, for a
                                       site with charts.mirror: .bundle/charts

--charts writes the sha256 of each chart that it fetches first into charts.sha256: commit that file. A chart of another
content is refused from then on, here and by the program. Charts are kept by their content in .bundle/store.

What several sites need is asked for once. A place that gives no answer in time is not asked again.

A folder after --from counts from where you are, and charts.mirror from the folder of the sites. Credentials are never
part of an address: helm registry login HOST
"""
CHARTS = Path(".bundle/charts")
STORE = Path(".bundle/store")


@click.command(cls=Command, epilog=MORE)
@sites_argument
@click.option(
    "--from", "mirror", metavar="ADDRESS", help="registry, repository or folder of all charts (charts.mirror)"
)
@click.option("--charts", is_flag=True, help=f"also pull the gateways' charts into {CHARTS}, as locked")
@click.option("--helm", "program", default="helm", metavar="PROGRAM", help="the helm program (the one on PATH)")
@waits
@pass_context
def command(
    context: CommandContext,
    *,
    sites: tuple[str, ...],
    mirror: str | None,
    charts: bool,
    program: str,
    timeout: float,
    total_timeout: float,
) -> int:
    project, pins = context.project, versions.load()
    helm, written = Helm(program_of(program), project), list[Path]()
    named = None if mirror is None else given_mirror(mirror)

    def note(text: str) -> None:
        context.progress.note(checkout.relative(text, project))

    asking = Asking(WaitingTimes(answer_s=timeout, total_s=total_timeout), note)
    files = checkout.chosen_sites(project, sites) if sites else checkout.site_files(project)
    failed: dict[str, BundleError | SiteError] = {}
    # Without a site, whatever one may come to install.
    wanted = dict.fromkeys([] if files else list(pins.charts))
    for name, file in files.items():
        try:
            site = plan_file(file).site
            wanted |= dict.fromkeys(installed_charts(site))
            sources = sources_of(site, helm, named or mirror_of(site, project), asking, pins)
            written += _of_site(site, sources, project, note)
        except (BundleError, SiteError) as error:
            failed[name] = error
    default = Sources(
        versions=pins, helm=helm, mirror=named, wanted=tuple(wanted), parts=pins.optional_parts, asking=asking
    )
    try:
        if not files:
            written += write_crds(default, project / CrdBundleSpec().folder, note)
        if charts:
            folder = ChartFolder(project=project, folder=project / CHARTS, store=ContentStore(project / STORE))
            written += folder.write(default, note)
    except BundleError as error:
        raise unable(error) from None
    if failed:
        raise _first(failed, alone=len(files) == 1)
    names = [checkout.relative(str(file), project) for file in written]
    lines = [*names, f"{counted(len(names), 'file')} written" if names else "all as pinned; nothing to fetch"]
    if len(sites) == 1:
        lines.append(invocation.next_step("plan", sites, context.named))
    context.say("\n".join(lines), {"written": names})
    return 0


def _of_site(site: SiteConfig, sources: Sources, project: Path, note: Callable[[str], None]) -> Iterator[Path]:
    manifest = cilium_manifest(site)
    if sources.defined:
        yield from write_crds(sources, project / site.crds.folder, note)
    if manifest:
        yield from write_pod_network(sources, project / manifest, note)


def _first(failed: Mapping[str, BundleError | SiteError], *, alone: bool) -> Exception:
    """The first site's error, which names the others that failed too."""
    (name, error), *others = failed.items()
    also = f"; also failed: {', '.join(other for other, _ in others)}" if others else ""
    if isinstance(error, SiteError):
        return SiteError(f"{error}\n{also.removeprefix('; ')}".rstrip())
    return unable(error, before="" if alone else f"{name}: ", after=also)


def unable(error: BundleError, before: str = "", after: str = "") -> SitectlError:
    return SitectlError.of(error.problem, before=before, after=after)


def program_of(name: str) -> str:
    """A path counts from where the user is, not from the project."""
    return str(Path(name).absolute()) if "/" in name else name


def given_mirror(address: str, option: str = "--from") -> str:
    """The address behind the option; a folder as its whole path. Raises SitectlError."""
    folder = Path(address)
    if address and folder.is_dir():
        return str(folder.resolve())
    try:
        checked_mirror(address)
    except WrongValueError as error:
        wrong = error.problem
        if not address or not folder.exists():
            raise _usage(f"{option}: {wrong.what}", allowed=wrong.allowed, fix=wrong.fix) from None
    if "://" not in address:
        what = "is a file, not a folder" if folder.exists() else "is no folder here"
        raise _usage(f"{option}: {address} {what}", fix="name a folder that holds charts as NAME-VERSION.tgz")
    return address


def _usage(what: str, *, fix: str, allowed: str = "") -> SitectlError:
    return SitectlError(what, allowed=allowed, fix=fix, status=Exit.USAGE)


def mirror_of(site: SiteConfig, project: Path) -> str | None:
    """The site's own, but for the folder that --charts fills: it holds no definitions."""
    mirror = site.charts.mirror
    return None if mirror and (project / mirror).resolve() == (project / CHARTS).resolve() else mirror
