"""`bundle`: fetch what sites install of other projects."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bundle.errors import BundleError
from bundle.fetching import Sources, write_charts, write_crds, write_pod_network
from bundle.helm import Helm
from components.specs.crd_bundle import CrdBundleSpec
from floor.counts import counted
from sitectl import checkout, invocation
from sitectl.errors import SitectlError
from stacks.facts import versions
from stacks.plan.site_plan import plan_file
from stacks.site.model import SiteConfig

MORE = """\
Takes charts by helm, as their publishers offer them or from the site's charts.mirror, and files of releases by HTTPS.
Writes definitions and Cilium's manifest only if they are what stacks/facts/versions.yaml pins. What is as pinned is not
fetched again, so a second call needs no network. Commit none of it.

  python -m sitectl bundle             for all sites of the folder
  python -m sitectl bundle berlin      for one of them
  python -m sitectl bundle --from oci://registry.site.example/charts
  python -m sitectl bundle --charts    the gateways' charts as well, for a
                                       site with charts.mirror: .bundle/charts
"""
CHARTS = Path(".bundle/charts")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", nargs="*", metavar="SITE", help="names of sites (default: all)")
    parser.add_argument(
        "--from", dest="mirror", metavar="ADDRESS", help="registry, repository or folder of all charts (the site's own)"
    )
    parser.add_argument("--charts", action="store_true", help=f"pull the gateways' charts into {CHARTS} as well")
    parser.add_argument("--helm", default="helm", metavar="PROGRAM", help="the helm program (the one on PATH)")


def run(context: Any, arguments: argparse.Namespace) -> int:
    project, pins = context.project, versions.load()
    helm, written = Helm(arguments.helm, project), list[Path]()

    def note(text: str) -> None:
        context.progress.note(checkout.relative(text, project))

    files = checkout.chosen_sites(project, arguments.site) if arguments.site else checkout.site_files(project)
    sites = {name: plan_file(file).site for name, file in files.items()}
    try:
        for site in sites.values():
            mirror = arguments.mirror or site.charts.mirror
            written += _of_site(site, Sources(versions=pins, helm=helm, mirror=mirror), project, note)
        default = Sources(versions=pins, helm=helm, mirror=arguments.mirror)
        if not sites:
            written += write_crds(default, project / CrdBundleSpec().folder, note)
        if arguments.charts:
            written += write_charts(default, project / CHARTS, note)
    except BundleError as error:
        raise SitectlError(error.what, got=error.got, allowed=error.allowed, fix=error.fix) from None
    names = [file.relative_to(project).as_posix() for file in written]
    lines = [*names, f"{counted(len(names), 'file')} written" if names else "all as pinned; nothing to fetch"]
    if len(arguments.site) == 1:
        lines.append(invocation.next_step("plan", arguments.site, arguments.project))
    context.say("\n".join(lines), {"written": names})
    return 0


def _of_site(site: SiteConfig, sources: Sources, project: Path, note: Callable[[str], None]) -> Iterator[Path]:
    machines = site.cluster.machines
    if site.crds.owner == "program":
        yield from write_crds(sources, project / site.crds.folder, note)
    if machines and machines.cni == "cilium":
        yield from write_pod_network(sources, project / machines.cilium_manifest, note)
