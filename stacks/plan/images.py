"""Every container image that a site runs, and whether the project's lock has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from floor.counts import counted
from floor.problems import Problem
from stacks.facts.image_lock import FILE, ImageLock
from stacks.facts.versions import Images
from stacks.plan.cluster import ClusterPlan
from stacks.plan.models import ModelPlan
from stacks.site.model import SiteConfig

_SHOWN = 8
_MONITORING = ("prometheus_operator", "prometheus", "config_reloader", "alertmanager", "kube_state_metrics")


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
    for name, model in models.items():
        users[images.endpoint_picker].add("endpoint pickers")
        for revision in model.revisions.values():
            users[revision.engine.image].add(f"model {name}")
            if revision.weights:
                users[revision.weights.image].add(f"weights of {name}")
    if site.monitoring.system == "prometheus_operator":
        for part in _MONITORING:
            users[known[part]].add("monitoring")
    for node in machines.nodes if machines else ():
        users[node.image].add("installers of machines")
    return {image: sorted(users[image]) for image in sorted(users)}


def unlocked_images(needed: Mapping[str, list[str]], lock: ImageLock, site: str) -> Iterator[Problem]:
    """One problem for all images that the lock lacks."""
    missing = [f"{image} ({', '.join(users)})" for image, users in needed.items() if lock.pinned(image) is None]
    if missing:
        more = f", and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        yield Problem(
            path=("images", "locked"),
            what=f"{FILE} lacks {counted(len(missing), 'image')} of the site: {', '.join(missing[:_SHOWN])}{more}",
            fix=f"sitectl bundle lock {site}, on a machine that reaches the registries or their mirror; then commit "
            f"{FILE}",
        )
