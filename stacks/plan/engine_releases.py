"""Revisions with another release of the engine than the platform's: its image, what it may be, what is not known."""

from __future__ import annotations

from collections.abc import Iterator

from floor.problems import Problem, shown
from floor.releases import numbers
from stacks.facts.image_lock import ImageLock
from stacks.facts.versions import Images, Versions, parts
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig


def with_release(images: Images, release: str | None, lock: ImageLock | None = None) -> Images:
    """The images with that release of vLLM, by its locked digest where there is one; as they are without a release."""
    if release is None:
        return images
    image = f"{parts(images.vllm)[0]}:v{release}"
    return images.model_copy(update={"vllm": (lock and lock.pinned(image)) or image})


def release_of(spec: OrderedModelSpec, images: Images) -> str:
    """The release that serves a revision, as `1.2.3`; empty for an image that is pinned by digest alone."""
    return spec.server.engine_release or parts(images.vllm)[1].removeprefix("v")


def wrong_releases(site: SiteConfig, pins: Versions) -> Iterator[Problem]:
    """Older ones: arguments, metrics and probes are those of the platform's release. And those of no vLLM."""
    pinned = parts(pins.images.vllm)[1].removeprefix("v")
    for revision, spec in site.revisions:
        release, path = spec.server.engine_release, (*revision.path, "server", "engine_release")
        if release is None or revision.group:
            continue
        if spec.server.engine != "vllm":
            yield Problem(
                path=path, what="is of vLLM, and this is its simulator", got=shown(release), fix="take it out"
            )
        elif pinned and numbers(release) < numbers(pinned):
            yield Problem(
                path=path,
                what=f"is older than the platform's release, {pinned}, whose arguments it would be started with",
                got=shown(release),
                allowed=f"{pinned} or later",
                fix="take it out, or use the version of this program that has that release",
            )


def uncompared_releases(site: SiteConfig, pins: Versions) -> Iterator[Problem]:
    """Later ones, of which no flag and no figure is known here."""
    pinned = parts(pins.images.vllm)[1].removeprefix("v")
    for revision, spec in site.revisions:
        release = spec.server.engine_release
        if release and release != pinned and not revision.group:
            fix = "give it percent: 0 until its replicas are ready, then compare answers with sitectl evaluate"
            yield Problem(
                path=(*revision.path, "server", "engine_release"),
                what=f"is not {pinned}, which arguments, memory and metrics were compared with: a replica that does "
                "not know an argument ends at its start, and figures of the proof are those of the known releases",
                got=shown(release),
                fix=fix if revision.digest else "try it below canary first, or leave it until the platform has it",
            )
