"""Images that only a rendering names: of charts whose tags the facts do not know, with the values of the site."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from bundle.fetching import Sources, is_pinned
from bundle.rendered_images import images_in
from components.addons.charts import chart_of
from floor.images import ImageReference
from policy.model import Resource
from stacks.facts.image_lock import ChartRelease
from stacks.plan.charts import cilium_digest, cilium_manifest
from stacks.plan.images import untagged_repositories
from stacks.plan.site_plan import SitePlan

_CILIUM = "cilium"


def rendered_images(
    plan: SitePlan, releases: list[Resource], sources: Sources, project: Path
) -> dict[ImageReference, set[ChartRelease]]:
    """Image -> the charts that name it, of each repository without a known tag. Raises BundleError."""
    wanted = defaultdict[ChartRelease, list[str]](list)
    for repository, charts in untagged_repositories(plan.site, plan.versions).items():
        for chart in charts:
            wanted[chart].append(repository)
    images = defaultdict[ImageReference, set[ChartRelease]](set)
    for release, repositories in wanted.items():
        text = _text(release.chart, plan, releases, sources, project)
        for image in images_in(text, repositories, f"the chart {release.chart}"):
            images[image].add(release)
    return dict(images)


def _text(chart: str, plan: SitePlan, releases: list[Resource], sources: Sources, project: Path) -> str:
    manifest = cilium_manifest(plan.site)
    if chart == _CILIUM and manifest:
        there = is_pinned(project / manifest, cilium_digest(plan.site, plan.versions.cilium))
        return (project / manifest).read_text(encoding="utf-8") if there else sources.pod_network()
    pin = plan.versions.charts[chart]
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
