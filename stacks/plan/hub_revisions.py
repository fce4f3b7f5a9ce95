"""Which commit of a model's repository a site serves, and whether the pinned engine is new enough for the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from floor.problems import Path, Problem
from floor.releases import numbers
from stacks.facts import catalogue
from stacks.facts.versions import Versions
from stacks.plan.engine_releases import release_of
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig


def served_revision(spec: OrderedModelSpec) -> str:
    """The site's own commit, else the catalogue's."""
    return spec.server.revision or spec.entry.revision


def engines_too_old(site: SiteConfig, pins: Versions) -> Iterator[Problem]:
    """Models whose documented minimum is above their vLLM; nothing for an image that is pinned by digest alone."""
    for revision, spec in site.revisions:
        if revision.group:
            continue
        drafts = spec.server.speculative.catalogue if spec.server.speculative else None
        served: dict[str, Path] = {spec.catalogue: (*revision.path, "catalogue")}
        if drafts:
            served[drafts] = (*revision.path, "server", "speculative", "catalogue")
        if spec.server.engine == "vllm" and (release := release_of(spec, pins.images)):
            yield from _too_old(served, release)


def _too_old(served: Mapping[str, Path], release: str) -> Iterator[Problem]:
    """Catalogue entries, by the keys that name them, whose minimum is above this version."""
    for entry, path in served.items():
        model = catalogue.load(entry)
        if model.engine_version and numbers(release) < numbers(model.engine_version):
            yield Problem(
                path=path,
                what=f"{model.repository} needs vLLM {model.engine_version} or later",
                got=release,
                allowed=f"{model.engine_version} or later ({model.sources.get('engine_version', '')})",
                fix="pin a later image of vLLM, or order another model",
            )
