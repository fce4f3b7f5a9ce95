"""Rows of `stacks/facts/compatibility.yaml` that speak about a site, and the key that decides each fact of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from components.addons import registry
from floor.revision_ids import RevisionId
from stacks.facts import catalogue, versions
from stacks.facts.compatibility import Fact, Row, speaking
from stacks.facts.versions import Versions
from stacks.plan.charts import optional_parts
from stacks.plan.engine_releases import with_release
from stacks.plan.placing import cuts_gpus
from stacks.site.demand import OrderedModelSpec
from stacks.site.model import SiteConfig

# Fact -> the key that decides it, of what no addon has.
_KEYS: Mapping[str, str] = {
    "talos": "versions.talos",
    "kubernetes": "versions.kubernetes",
    "kubelet": "versions.kubelet",
    "cilium": "versions.cilium.version",
    "nvidia_production_driver": "versions.nvidia.production.driver",
    "nvidia_production_fabric_manager": "versions.nvidia.production.fabric_manager",
    "nvidia_lts_driver": "versions.nvidia.lts.driver",
    "nvidia_lts_fabric_manager": "versions.nvidia.lts.fabric_manager",
    "picker_image": "versions.images.endpoint_picker",
    "picker": "versions.images.endpoint_picker",
    "vllm": "versions.images.vllm",
    "simulator": "versions.images.simulator",
    "gpus": "cluster.gpu_stack",
    "storage_class": "storage.storage_class",
}


def deciding_keys() -> dict[str, str]:
    """Fact -> the key that decides it, as `stacks.site.reading.origins` names keys; those of models are not here."""
    addons = registry.ADDONS
    return {
        **_KEYS,
        **{chart.name: f"versions.charts.{chart.name}.version" for addon in addons for chart in addon.charts},
        **{image.name: f"versions.images.{image.name}" for addon in addons for image in addon.images},
        **{definitions_fact(file): f"versions.crd_versions.{file}" for file in versions.load().crd_versions},
    }


def definitions_fact(file: str) -> str:
    """The fact that is the release of this file of definitions."""
    return f"{file.removesuffix('.json').replace('-', '_')}_crds"


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """A row that speaks, and what it names: fact -> (value, key that decides it)."""

    row: Row
    named: Mapping[str, tuple[str, str]]


_Revisions = Sequence[tuple[RevisionId, OrderedModelSpec]]


def facts(pins: Versions, site: SiteConfig, revisions: _Revisions | None = None) -> dict[str, Fact]:
    """What rows may ask for: versions as `1.2.3` without a v, strings, and lists of strings.

    revisions: of the site's, those that count; None for all.
    """
    counted = [*site.revisions] if revisions is None else revisions
    picker_image, picker = versions.parts(pins.images.endpoint_picker)
    known: dict[str, Fact] = {
        "talos": pins.talos,
        "kubernetes": pins.kubernetes,
        "kubelet": pins.kubelet or pins.kubernetes,
        "nvidia_production_driver": pins.nvidia.production.driver,
        "nvidia_production_fabric_manager": pins.nvidia.production.fabric_manager,
        "nvidia_lts_driver": pins.nvidia.lts.driver,
        "nvidia_lts_fabric_manager": pins.nvidia.lts.fabric_manager,
        "picker_image": picker_image,
        "picker": picker,
        "storage_class": site.storage.storage_class,
        "models": frozenset(model.catalogue for _, model in counted),
    }
    if site.cluster.machines is not None and site.cluster.machines.cni == "cilium":
        known["cilium"] = pins.cilium.version
    engines = {model.server.engine for _, model in counted}
    if "vllm" in engines:
        known["vllm"] = versions.parts(pins.images.vllm)[1]
        known["vllm_flags"] = frozenset(_vllm_flags(counted))
    if "simulator" in engines:
        known["simulator"] = versions.parts(pins.images.simulator)[1]
    of_pins = dict[str, str](pins.images)
    for addon in registry.installed(site):
        known |= {chart.name: pins.charts[chart.name].version for chart in addon.charts}
        for image in addon.images:
            known[image.name] = versions.parts(of_pins[image.name])[1].removeprefix(image.tag_prefix)
    if site.cluster.gpu_stack == "operator":
        known["gpus"] = "cut" if cuts_gpus(site) else "whole"
    if site.crds.owner == "program":
        known |= {definitions_fact(file): pins.crd_versions[file] for file in pins.crds_with(optional_parts(site))}
    return {name: value.removeprefix("v") if isinstance(value, str) else value for name, value in known.items()}


def conflicts(pins: Versions, site: SiteConfig) -> list[Conflict]:
    """Rows that speak about this set of versions and this site, in the order of the file.

    Then those of revisions with another release of vLLM, about that release alone.
    """
    by_release: dict[str | None, list[tuple[RevisionId, OrderedModelSpec]]] = {None: []}
    for revision, spec in site.revisions:
        by_release.setdefault(spec.server.engine_release, []).append((revision, spec))
    conflicting = []
    for release, revisions in by_release.items():
        own = pins.model_copy(update={"images": with_release(pins.images, release)})
        conflicting += _among(own, site, revisions, released=release is not None)
    return conflicting


def _among(pins: Versions, site: SiteConfig, revisions: _Revisions, *, released: bool) -> list[Conflict]:
    known, decided = facts(pins, site, revisions), deciding_keys()
    if released:
        decided["vllm"] = ".".join((*revisions[0][0].path, "server", "engine_release"))
    conflicting = []
    for row, asked in speaking(known):
        if released and "vllm" not in asked:
            continue
        named = {}
        for fact in asked:
            value = known[fact]
            if isinstance(value, str):
                named[fact] = (value, decided[fact])
            else:
                entry = row.when[fact].removeprefix("has ")
                named[fact] = (entry, _key_of(revisions, fact, entry))
        conflicting.append(Conflict(row=row, named=named))
    return conflicting


def _key_of(revisions: _Revisions, fact: str, entry: str) -> str:
    """Key of the first model that brings this entry into the fact."""
    for revision, model in revisions:
        of = ".".join(revision.path)
        if fact == "models" and model.catalogue == entry:
            return f"{of}.catalogue"
        if fact == "vllm_flags" and entry in _names(model.server.extra_args):
            return f"{of}.server.extra_args"
        if fact == "vllm_flags" and entry in _names(model.entry.engine_flags):
            return f"catalogue.{model.catalogue}.engine_flags"
    return "models"


def _vllm_flags(revisions: _Revisions) -> Iterator[str]:
    """Names of the flags that catalogue and site give to vLLM."""
    served = [model for _, model in revisions if model.server.engine == "vllm"]
    for entry in {model.catalogue for model in served}:
        yield from _names(catalogue.load(entry).engine_flags)
    for model in served:
        yield from _names(model.server.extra_args)


def _names(flags: Iterable[str]) -> list[str]:
    return [flag.partition("=")[0] for flag in flags]
