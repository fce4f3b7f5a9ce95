"""Which commit of a model's repository a site serves, and whether the pinned engine is new enough for the model."""

from __future__ import annotations

from collections.abc import Iterator

from components.specs.weights import WeightsSpec
from floor.problems import Problem
from stacks.facts import catalogue, versions
from stacks.facts.versions import Versions
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig


def served_revision(spec: OrderedModelSpec, source: WeightsSpec) -> str:
    """The site's own commit, else the catalogue's; empty for files that the site brings, which may be of any commit."""
    if spec.server.revision is not None:
        return spec.server.revision
    return catalogue.load(spec.catalogue).revision if source.downloaded else ""


def engines_too_old(site: SiteConfig, pins: Versions) -> Iterator[Problem]:
    """Models whose documented minimum is above the pinned vLLM; nothing for an image that is pinned by digest alone."""
    pinned = versions.parts(pins.images.vllm)[1].removeprefix("v")
    for name, spec in sorted(site.models.items()):
        model = catalogue.load(spec.catalogue)
        if spec.server.engine != "vllm" or not model.engine_version or not pinned:
            continue
        if _numbers(pinned) < _numbers(model.engine_version):
            yield Problem(
                path=("models", name, "catalogue"),
                what=f"{model.repository} needs vLLM {model.engine_version} or later",
                got=f"{pinned}, pinned in stacks/facts/versions.yaml",
                allowed=f"{model.engine_version} or later ({model.sources.get('engine_version', '')})",
                fix="pin a later image of vLLM, or order another model",
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])
