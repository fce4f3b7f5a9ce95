"""Every container image that a site runs, and whether the project's lock has them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from components.addons import registry
from floor.counts import counted
from floor.problems import Problem
from stacks.facts import chart_images
from stacks.facts.image_lock import FILE, ChartRelease, ImageLock
from stacks.facts.own_images import is_built_here
from stacks.facts.versions import Images, Versions
from stacks.plan.charts import brings_cilium, installed_charts
from stacks.plan.cluster import ClusterPlan
from stacks.plan.models import ModelPlan
from stacks.plan.placing import cuts_gpus
from stacks.site.model import SiteConfig
from talos.images import machine_images

_SHOWN = 8
_CILIUM = "cilium"


def pinned_images(images: Images, lock: ImageLock) -> Images:
    """The same by their locked digests; one that is not locked stays as it is, for `unlocked_images` to report."""
    known: dict[str, str] = dict(images)
    return images.model_copy(update={name: lock.pinned(image) or image for name, image in known.items()})


def site_images(
    site: SiteConfig, images: Images, models: Mapping[str, ModelPlan], machines: ClusterPlan | None
) -> dict[str, list[str]]:
    """Image -> what of the site runs it, both sorted. Images that a site's own additions bring are not known here."""
    known: dict[str, str] = dict(images)
    users = defaultdict[str, set[str]](set)
    for model in models.values():
        users[images.endpoint_picker].add("endpoint pickers")
        for revision in model.revisions.values():
            users[revision.engine.image].add(f"model {revision.name}")
            if revision.weights:
                users[revision.weights.image].add(f"weights of {revision.name}")
    for chart in _charts(site):
        started = chart_images.load()[chart].images
        # Of those that are compiled in, the program names the one that runs: Envoy.
        for image in (*started.get("chart", {}), *started.get("controller", {})):
            users[image].add(f"chart {chart}")
    # What the program names beside the charts, or in their place.
    for addon in registry.installed(site):
        for named in addon.images:
            users[known[named.name]].add(named.user)
    if site.cluster.machines and site.cluster.machines.etcd_backup:
        users[images.talos_backup].add("etcd backups")
    for node in machines.nodes if machines else ():
        users[node.image].add("installers of machines")
    for image in _of_machines(site, machines):
        users[image].add("machines")
    return {image: sorted(users[image]) for image in sorted(users)}


def untagged_repositories(site: SiteConfig, pins: Versions) -> dict[str, list[ChartRelease]]:
    """Repositories of which a chart of the site runs a tag that only a rendering of it has; the charts of each."""
    releases = defaultdict[str, list[ChartRelease]](list)
    for chart in _charts(site):
        version = pins.cilium.version if chart == _CILIUM else pins.charts[chart].version
        entry = chart_images.load()[chart]
        for repository in (*entry.unknown_tags, *(entry.with_slices if cuts_gpus(site) else ())):
            releases[repository].append(ChartRelease(chart, version))
    return {repository: releases[repository] for repository in sorted(releases)}


def _charts(site: SiteConfig) -> list[str]:
    """Charts of the site as the facts name them."""
    return [*installed_charts(site), *([_CILIUM] if brings_cilium(site) else [])]


def _of_machines(site: SiteConfig, machines: ClusterPlan | None) -> Iterable[str]:
    """What Talos and Kubernetes pull by themselves."""
    if machines is None:
        return ()
    pins = machines.versions
    # Cilium is in kube-proxy's place; a pod network of the site's own may want it.
    return machine_images(
        pins.talos,
        kubernetes=pins.kubernetes,
        kubelet=pins.kubelet,
        kube_proxy=not brings_cilium(site),
        flannel=False,
    )


def unlocked_images(
    needed: Mapping[str, list[str]], untagged: Mapping[str, list[ChartRelease]], lock: ImageLock, site: str
) -> Iterator[Problem]:
    """One problem for all images that the lock lacks.

    untagged: repositories of which it must have an image that a rendering of each of these releases names.
    """
    missing = [
        f"{shortened(image)} ({', '.join(users)})" for image, users in needed.items() if lock.pinned(image) is None
    ]
    for name, releases in untagged.items():
        new = [release for release in releases if not lock.rendered(name, release)]
        if new:
            missing.append(f"{name} ({', '.join(f'chart {release.chart} {release.version}' for release in new)})")
    if missing:
        more = f", and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        first = "sitectl bundle services, then " if any(map(is_built_here, missing)) else ""
        yield Problem(
            path=("images", "locked"),
            what=f"{FILE} lacks {counted(len(missing), 'image')} of the site: {', '.join(missing[:_SHOWN])}{more}",
            fix=f"{first}sitectl bundle lock {site}, on a machine that reaches the registries or their mirror; then "
            f"commit {FILE}",
        )


def shortened(image: str) -> str:
    """For messages: a schematic's id, which looks like a secret, by its first digits."""
    return re.sub(r"/([0-9a-f]{12})[0-9a-f]{52}\b", r"/\1...", image)
