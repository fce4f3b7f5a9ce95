"""Reads `versions.yaml`: the only place that names versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from floor.problems import Problem, WrongValueError, file_error
from floor.reading.document import read
from floor.spec import Spec
from stacks.facts.records import read_facts

FILE = Path(__file__).parent / "versions.yaml"

# Minor versions, by Kubernetes' version skew policy (kubernetes.io/releases/version-skew-policy).
_KUBELET_BEHIND = 3

_OTHER = "name a revision whose file this project could read"
# A tag that names one release, or a digest, perhaps beside a commit; `latest` and branches move under those who name
# them.
_DEBIAN = r"[0-9]+\.[0-9]+-system-trixie|[0-9]+\.[0-9]+\.[0-9]+-slim-trixie"
_RELEASE = rf"(distroless-|network-operator-)?v?[0-9]+\.[0-9]+\.[0-9]+(-beta\.[0-9]+)?|{_DEBIAN}"
_TAG, _DIGEST = rf":({_RELEASE})", "@sha256:[0-9a-f]{64}"
Image = Annotated[str, Field(pattern=rf"^[a-z0-9.:-]+(/[a-z0-9._-]+)+({_TAG}({_DIGEST})?|(:[0-9a-f]{{8}})?{_DIGEST})$")]
Release = Annotated[str, Field(pattern=r"^v?[0-9]+\.[0-9]+\.[0-9]+$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class NvidiaFork(Spec):
    """Driver and fabric manager of one of NVIDIA's lines."""

    driver: Release
    fabric_manager: Release


class Nvidia(Spec):
    """What the Talos version's extensions carry."""

    production: NvidiaFork
    lts: NvidiaFork


class Images(Spec):
    """Container images by tag."""

    alertmanager: Image
    config_reloader: Image
    directory: Image
    endpoint_picker: Image
    envoy: Image
    gatekeeper: Image
    kube_state_metrics: Image
    ledger: Image
    watcher: Image
    limit_counters: Image
    postgresql: Image
    limit_service: Image
    portal: Image
    prometheus: Image
    prometheus_operator: Image
    python: Image
    rdma_device_plugin: Image
    simulator: Image
    split_picker: Image
    split_sidecar: Image
    talos_backup: Image
    vllm: Image


class ChartVersion(Spec):
    """A chart's OCI address, or its name in its publisher's repository, and its exact version."""

    chart: str
    version: Release
    repository: str | None = None


class CiliumVersion(ChartVersion):
    """Cilium's chart, in its publisher's repository, and the digests of its manifest by what a site chooses."""

    repository: str
    manifest: Digest
    manifest_with_bgp: Digest
    manifest_measured: Digest
    manifest_with_bgp_measured: Digest

    def digest(self, *, bgp: bool, measured: bool = False) -> str:
        """sha256 in hex of the manifest. bgp: the site announces addresses by BGP. measured: it reads its metrics."""
        if measured:
            return self.manifest_with_bgp_measured if bgp else self.manifest_measured
        return self.manifest_with_bgp if bgp else self.manifest


class CrdSource(Spec):
    """Where the definitions of one file of `crds` are published: in a chart, or in a file of the release."""

    chart: str | None = None
    next_to: str | None = None
    """The chart of `charts` that has the same registry and version, or is this one."""
    values: dict[str, Any] = Field(default_factory=dict)
    """Values that make the chart render these definitions and no others."""
    file: str | None = None
    """Address of the file; `{release}` is the file's own of `crd_versions`."""
    only_with: str | None = None
    """The part of a site that alone needs these definitions, an addon by its key; None: every site needs them."""

    @model_validator(mode="after")
    def _is_one(self) -> CrdSource:
        if (self.chart is None) != (self.next_to is None) or (self.chart is None) == (self.file is None):
            raise WrongValueError(
                "names no source, or two", allowed="chart with next_to, or file", fix="name the one that publishes them"
            )
        return self


class Versions(Spec):
    """Talos and Kubernetes as `v1.2.3`, images by tag, charts by version, files by sha256 in hex and release."""

    talos: Release
    kubernetes: Release
    kubelet: Release | None = None
    """Of another version than `kubernetes` only between the two halves of a minor upgrade."""
    go: Release
    """What builds the gatekeeper's image."""
    nvidia: Nvidia
    cilium: CiliumVersion
    images: Images
    charts: dict[str, ChartVersion]
    """Charts that a site may let the program install; `components/addons` has an addon for each."""
    crds: dict[str, Digest]
    crd_versions: dict[str, Release]
    crd_sources: dict[str, CrdSource]

    @property
    def optional_parts(self) -> list[str]:
        """Every part that alone needs definitions."""
        return sorted({source.only_with for source in self.crd_sources.values() if source.only_with})

    def crds_with(self, parts: Collection[str] = ()) -> dict[str, Digest]:
        """The files of `crds` that a site with these parts declares, and no others: file name -> sha256 in hex.

        This is what a site hands to `read_bundle` and to `write_crds`; the lab's own folder has every file.
        """
        sources = self.crd_sources
        return {file: pin for file, pin in self.crds.items() if sources[file].only_with in (None, *parts)}

    @model_validator(mode="after")
    def _kubelet_follows(self) -> Versions:
        if self.kubelet is not None:
            control_plane, kubelet = (int(version.split(".")[1]) for version in (self.kubernetes, self.kubelet))
            if not 0 <= control_plane - kubelet <= _KUBELET_BEHIND:
                raise WrongValueError(
                    f"kubelet is {self.kubelet} and kubernetes is {self.kubernetes}",
                    allowed=f"the same minor version or up to {_KUBELET_BEHIND} before it",
                    fix="name one of those, or leave kubelet out",
                )
        return self

    @model_validator(mode="after")
    def _same_files(self) -> Versions:
        for name, table in (("crd_versions", self.crd_versions), ("crd_sources", self.crd_sources)):
            if differing := sorted(set(self.crds) ^ set(table)):
                raise WrongValueError(f"crds and {name} differ in {differing}", fix="name each file in both")
        return self


@cache
def load() -> Versions:
    """The pins of this checkout. Raises SiteError for a file that is wrong."""
    return read_facts(FILE, Versions)


def of_text(text: str, name: str, instead: Versions) -> Versions:
    """The pins of another revision's file, read as this checkout reads them.

    A key that only one of the two has is as in `instead`: the other revision did not know the part, or this one does
    not. Raises SiteError, which calls the file `name`.
    """
    document = read(text)
    if document.problems:
        raise file_error(name, document.problems)
    given = document.values if isinstance(document.values, dict) else {}
    try:
        return Versions.model_validate({**_over(instead.model_dump(), given), "kubelet": given.get("kubelet")})
    except ValidationError as error:
        problems = [Problem(path=tuple(map(str, row["loc"])), what=row["msg"], fix=_OTHER) for row in error.errors()]
        raise file_error(name, problems) from None


def _over(known: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`known` with the values that `given` has for its keys."""
    merged = dict(known)
    for key, value in known.items():
        other = given.get(key, value)
        merged[key] = _over(value, other) if isinstance(value, Mapping) and isinstance(other, Mapping) else other
    return merged


def parts(image: str) -> tuple[str, str]:
    """(repository, tag) of an image reference; the tag is empty where a digest alone is given."""
    name = image.partition("@")[0]
    folder, _, last = name.rpartition("/")
    repository, _, tag = last.partition(":")
    return f"{folder}/{repository}", tag


def minor_of(image: str) -> tuple[int, int] | None:
    """Major and minor version of an image by its tag; None where a digest alone is given."""
    numbers = parts(image)[1].removeprefix("v").split(".")
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else None
