"""Which versions of the platform's parts run, out of the objects of a cluster: facts, as the upgrade rules name them.

Pure. Releases of Helm state charts, Pods state images, nodes state kubelets and Talos, definitions state their bundle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.addons import registry
from floor import namespaces
from floor.problems import Problem
from floor.releases import numbers
from sitectl.live.helm_releases import HelmRelease
from stacks.facts import versions
from stacks.facts.versions import Images, Versions
from stacks.plan.charts import installed_charts
from stacks.plan.conflicts import definitions_fact
from stacks.site.model import SiteConfig

Object = Mapping[str, Any]
Places = Mapping[str, Sequence[str]]
"""Version -> where it runs."""

# Name of the pinned image, which is a fact -> namespace and container of its Pods. The last part of its name is theirs
# too: an engine is in the same container whichever it is. The picker is known by its container, as its image has moved
# before.
_IMAGES: Mapping[str, tuple[str, str]] = {
    "vllm": (namespaces.MODELS, "engine"),
    "simulator": (namespaces.MODELS, "engine"),
}
PICKER, _CILIUM, _API_SERVER = "epp", "cilium-agent", "kube-apiserver"
_SYSTEM = "kube-system"
# Fact -> the annotation by which definitions state the release that they are of.
_DEFINITIONS: Mapping[str, str] = {
    "gateway_api_crds": "gateway.networking.k8s.io/bundle-version",
    "inference_extension_crds": "inference.networking.k8s.io/bundle-version",
    "prometheus_operator_crds": "operator.prometheus.io/version",
}
_TALOS = re.compile(r"Talos \((v[0-9.]+)\)")
_RELEASE = re.compile(r"v?(\d+\.\d+\.\d+)")
_ENDED = ("Succeeded", "Failed")


def images() -> dict[str, tuple[str, str]]:
    """Name of a pinned image -> namespace and container of the Pods that run it."""
    addons = registry.ADDONS
    return {**_IMAGES} | {image.name: (addon.namespace, image.container) for addon in addons for image in addon.images}


@dataclass(frozen=True, kw_only=True)
class ClusterObjects:
    """What is asked of a cluster."""

    server: str
    """Version of the API server that answers."""
    nodes: Sequence[Object]
    pods: Sequence[Object]
    definitions: Sequence[Object]
    releases: Sequence[HelmRelease]


@dataclass(frozen=True, kw_only=True)
class RunningVersions:
    """What runs, by fact."""

    places: Mapping[str, Places]
    """Fact -> version -> where; several versions while a roll is under way or was interrupted."""
    taken_from: Mapping[str, str]
    """Fact -> the fact that it was taken from, as nothing in the cluster states it."""
    releases: Sequence[HelmRelease]
    """Those of the platform's charts."""

    def facts(self, wanted: Mapping[str, Any]) -> dict[str, str]:
        """Fact -> one version: of several, the oldest that is not the wanted one, as there the steps begin."""
        chosen = {}
        for fact, places in self.places.items():
            others = [version for version in places if version != wanted.get(fact)]
            chosen[fact] = min(others or places, key=_order)
        return chosen

    def problems(self) -> Iterator[Problem]:
        """Releases that Helm did not finish: no step begins there."""
        for release in self.releases:
            if not release.in_order:
                yield _unfinished(release)


def running(objects: ClusterObjects, site: SiteConfig, pins: Versions) -> RunningVersions:
    """What runs of the parts that a site can have; what is not there has no fact."""
    by_fact: dict[str, dict[str, list[str]]] = {}
    ours = platform_releases(objects.releases, site, pins)
    for fact, stated, place in _stated(objects, ours, pins.images):
        # An image's name is a fact by itself.
        version = stated if fact == "picker_image" else _release(stated)
        if version:
            places = by_fact.setdefault(fact, {}).setdefault(version, [])
            if place not in places:
                places.append(place)
    taken = {fact: chart for fact, chart in _next_to(pins) if chart in by_fact and fact not in by_fact}
    for fact, chart in taken.items():
        by_fact[fact] = by_fact[chart]
    return RunningVersions(places=by_fact, taken_from=taken, releases=list(ours.values()))


def _next_to(pins: Versions) -> Iterator[tuple[str, str]]:
    """What may state no version, definitions and images by digest, and the chart in whose version it is published."""
    for file, source in pins.crd_sources.items():
        if source.next_to and (fact := definitions_fact(file)) not in _DEFINITIONS:
            yield fact, source.next_to
    for addon in registry.ADDONS:
        yield from ((image.name, image.next_to) for image in addon.images)


def _stated(objects: ClusterObjects, ours: Mapping[str, HelmRelease], pins: Images) -> Iterator[tuple[str, str, str]]:
    """(fact, version as it is stated, where)."""
    yield "kubernetes", objects.server, "the API server that answers"
    for node in objects.nodes:
        name, info = node["metadata"]["name"], node["status"]["nodeInfo"]
        yield "kubelet", info["kubeletVersion"], name
        if system := _TALOS.search(info.get("osImage", "")):
            yield "talos", system[1], name
    of_pods = images()
    for pod in objects.pods:
        if "deletionTimestamp" not in pod["metadata"] and pod.get("status", {}).get("phase") not in _ENDED:
            yield from _of_pod(pod, pins, of_pods)
    for definition in objects.definitions:
        meta = definition["metadata"]
        for fact, annotation in _DEFINITIONS.items():
            if stated := (meta.get("annotations") or {}).get(annotation):
                yield fact, stated, meta["name"]
    for field, release in ours.items():
        if release.deployed:
            yield field, release.deployed.chart_version, f"Helm release {release.label}"


def _of_pod(pod: Object, pins: Images, of_pods: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    for container in pod["spec"]["containers"]:
        repository, tag = versions.parts(container["image"])
        called, place = (namespace, container["name"]), f"{namespace}/{name}"
        if called == (namespaces.MODELS, PICKER):
            yield "picker_image", repository, place
            yield "picker", tag, place
        elif called == (_SYSTEM, _CILIUM):
            yield "cilium", tag, place
        elif called == (_SYSTEM, _API_SERVER):
            yield "kubernetes", tag, place
        for fact, runs_in in of_pods.items():
            if called == runs_in and _last(repository) == _last(versions.parts(getattr(pins, fact))[0]):
                yield fact, tag, place


def platform_releases(releases: Sequence[HelmRelease], site: SiteConfig, pins: Versions) -> dict[str, HelmRelease]:
    """Chart's field in versions.yaml -> its release, of the charts that the site lets the program install."""
    spaces = registry.chart_namespaces()
    places = {(spaces[field], _last(pins.charts[field].chart)): field for field in installed_charts(site)}
    by_place = {(release.newest.namespace, release.newest.chart): release for release in releases}
    return {field: by_place[place] for place, field in places.items() if place in by_place}


def _unfinished(release: HelmRelease) -> Problem:
    newest, before = release.newest, release.deployed
    wait, space, again = (
        "let a running `pulumi up` end; if none runs:",
        f"--namespace {newest.namespace}",
        "`pulumi up`",
    )
    if newest.status == "failed":
        fix = (
            f"helm history {newest.name} {space} has the reason; correct it, and the next {again} upgrades the release"
        )
    elif before:
        fix = f"{wait} helm rollback {newest.name} {before.number} {space}, then {again}"
    else:
        fix = f"{wait} helm uninstall {newest.name} {space}, then {again}"
    deployed = f"{before.chart_version} as revision {before.number}" if before else "none"
    return Problem(
        path=(release.label,),
        what=f"the Helm release of {newest.chart} {newest.chart_version} is {newest.status}",
        got=f"revision {newest.number}; last deployed: {deployed}",
        allowed="deployed",
        fix=fix,
    )


def _release(stated: str) -> str:
    """`v1.36.3+vendor` -> `1.36.3`; a commit as it is, and nothing where an image is named by its digest alone."""
    match = _RELEASE.search(stated)
    return match[1] if match else stated


def _order(version: str) -> tuple[tuple[int, int, int], str]:
    return numbers(version), version


def _last(name: str) -> str:
    return name.rpartition("/")[2]
