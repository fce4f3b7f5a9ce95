"""Images that only a rendering names: of charts whose tags the facts do not know, with the values of the site."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from bundle.fetching import Sources, is_pinned
from bundle.rendered_images import images_in
from components.addons.charts import chart_of
from floor.images import ImageReference
from policy.model import Resource
from stacks.plan.images import untagged_repositories
from stacks.plan.site_plan import SitePlan

_CILIUM = "cilium"


def rendered_images(
    plan: SitePlan, releases: list[Resource], sources: Sources, project: Path
) -> dict[ImageReference, str]:
    """Image -> its chart, of each repository without a known tag. Raises BundleError."""
    wanted = defaultdict[str, list[str]](list)
    for repository, charts in untagged_repositories(plan.site).items():
        for chart in charts:
            wanted[chart].append(repository)
    return {
        image: chart
        for chart, repositories in wanted.items()
        for image in images_in(_text(chart, plan, releases, sources, project), repositories, f"the chart {chart}")
    }


def _text(chart: str, plan: SitePlan, releases: list[Resource], sources: Sources, project: Path) -> str:
    machines = plan.site.cluster.machines
    if chart == _CILIUM and machines:
        manifest = project / machines.cilium_manifest
        there = is_pinned(manifest, plan.versions.cilium.manifest)
        return manifest.read_text(encoding="utf-8") if there else sources.pod_network()
    pin = plan.versions.charts.pinned(chart)
    name = pin.chart.rpartition("/")[2]
    # Out of a folder it is the packed file; an address before the name may have any chart's name in it.
    forms = {name, f"{name}-{pin.version}.tgz"}
    (release,) = [
        body for body in (resource.body for resource in releases) if str(body.get("chart")).rpartition("/")[2] in forms
    ]
    return sources.rendered(
        chart_of(pin.chart, pin.version, sources.mirror, pin.repository),
        str(release["name"]),
        release.get("values") or {},
        str(release["namespace"]),
    )
