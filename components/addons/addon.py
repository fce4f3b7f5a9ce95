"""The descriptor of an addon: all that the platform knows of a program of others that it may install.

Charts, images, running versions, compatibility, monitoring, verdicts and the program itself go through the registry
of descriptors. No descriptor imports Pulumi's SDK, so that reading a site stays fast; `installed.py` declares what a
descriptor builds. Versions and rules with sources are data of `stacks/facts`, under the names of charts here (ADR 50).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from components.addons.charts import Chart
from components.network_policies import Peer
from components.placing import ANYWHERE, Placing
from components.scrape_target import ScrapeTarget
from components.specs.administrators import AdministratorsSpec
from components.specs.longhorn import DataEngine
from components.specs.rdma_devices import LinkKind
from floor.namespaces import PodSecurity
from floor.stateful import Holder, Keeping
from floor.taints import Taint

Section = TypeVar("Section")
Gives = Literal["hardware", "addresses", "certificates", "secrets", "autoscaling", "groups", "databases"]
"""What works once an addon is there, for parts of the program that need it."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a node offers to replicas."""

    resource: str
    """Whole GPUs, or slices of one profile."""
    count: int


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """The program's own Prometheus and what shows its samples, for others in its namespace."""

    prometheus: str
    """Address that pods ask."""
    pods: Peer
    port: int
    interval_s: int
    """Between two samples of a target."""
    dashboards: Sequence[str]
    """Names of their ConfigMaps."""


@dataclass(frozen=True, kw_only=True)
class AddonSite:
    """What an addon may know of a site."""

    charts: Mapping[str, Chart]
    """By their names in versions.yaml."""
    name: str = ""
    """Of the site."""
    section: object = None
    """The Spec that the descriptor's `section` names."""
    images: Mapping[str, str] = field(default_factory=dict)
    """By their names in versions.yaml."""
    taints: Sequence[Taint] = ()
    """Of all nodes."""
    gpu_taints: Sequence[Taint] = ()
    """Of the nodes with GPUs, which are those with disks."""
    watched: bool = False
    """Whether the watcher may taint nodes with GPUs: what their GPUs are known by must run there nevertheless."""
    offers: Mapping[str, Offer] = field(default_factory=dict)
    """By node, of those that replicas run on; empty where the site does not list them."""
    cuts_gpus: bool = False
    """Whether a node names a layout by which its GPUs are cut (MIG)."""
    dead_nodes: bool = False
    """Whether the site lists nodes that are dead: on one of them no pod ever runs."""
    disks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Names of the disks by node; empty where the site does not list its nodes."""
    engine: DataEngine = "v1"
    """The one that the disks are for."""
    link: LinkKind | None = None
    """Of the machines' RDMA cards; None where the site does not list its machines."""
    storage_class: str = "longhorn"
    """Name of the class for weights."""
    keeping: Keeping = "protected"
    """Whether volumes are kept."""
    volume_class: str = ""
    """Of the volume that the addon keeps data on; empty where it has none."""
    placing: Placing = ANYWHERE
    """Nodes on which that volume can be mounted."""
    scrapers: Sequence[Peer] = ()
    """Pods that may read metrics; none where nothing measures."""
    measuring: Measuring | None = None
    """None where the program installs no Prometheus."""
    administrators: AdministratorsSpec | None = None
    """Whose logins the cluster takes; None where that is not the program's to know."""
    trusted_roots: Mapping[str, str] = field(default_factory=dict)
    """Certificates (PEM) that machines trust beside public ones, by name."""

    def spec(self, kind: type[Section]) -> Section:
        """The section, which is of this kind."""
        if not isinstance(self.section, kind):
            raise TypeError(f"the section is {type(self.section).__name__}, not {kind.__name__}")
        return self.section


@dataclass(frozen=True, kw_only=True)
class AddonRelease:
    """One chart as Helm installs it."""

    name: str
    """Of the release; with the addon's name before it, of the resource."""
    chart: Chart
    values: Mapping[str, Any]
    hooks_upgrade_definitions: bool = False
    """The chart brings definitions with hooks that upgrade them, which Helm must not check against the old ones."""
    holder: Holder | None = None
    """What data would go with it."""
    keeping: Keeping = "disposable"
    """Whether the engine refuses to uninstall it."""


@dataclass(frozen=True, kw_only=True)
class AddonObject:
    """An object that needs the releases."""

    suffix: str
    body: Mapping[str, Any]
    after: Sequence[str] = ()
    """What it waits for, by names of releases and suffixes of earlier objects; empty for every release."""
    patience_s: int | None = None
    is_patch: bool = False
    """Whether it adds to an object that others make."""


@dataclass(frozen=True, kw_only=True)
class AddonContent:
    """What an addon consists of on one site."""

    releases: Sequence[AddonRelease]
    """Each after the one before it."""
    network_policies: Sequence[Mapping[str, Any]] = ()
    """The namespace denies all other ingress."""
    before: Sequence[Mapping[str, Any]] = ()
    """Objects that the releases need."""
    objects: Sequence[AddonObject] = ()
    """The addon works once they are there."""
    notice: str = ""
    """Shown when `up` begins to wait for them; `{stack}` is the stack's name."""


@dataclass(frozen=True, kw_only=True)
class AddonChart:
    """One chart of an addon."""

    name: str
    """In versions.yaml and in every other table of facts."""
    release: str
    """Name that Helm's release of it has."""
    uninstalled: str
    """Verdict: what is lost with the release."""
    upgraded: str
    """Verdict: what another version of it does."""


@dataclass(frozen=True, kw_only=True)
class AddonImage:
    """An image that the program names beside an addon's charts, or in their place."""

    name: str
    """In versions.yaml, and as a fact of the compatibility table."""
    container: str
    """That runs it, in the addon's namespace."""
    user: str
    """What runs it, for people."""
    tag_prefix: str = ""
    """Before the version in its tag."""
    next_to: str = ""
    """The chart in whose version it is published, where its digest alone is on the cluster."""


@dataclass(frozen=True, kw_only=True)
class AddonComponent:
    """How the program declares an addon."""

    name: str
    resource_type: str
    """Token of its type, for good: another one replaces all of it on every site."""
    pod_security: PodSecurity | None
    """What its namespace admits; None where that is made by what it needs."""
    content: Callable[[AddonSite], AddonContent]
    needs: tuple[str, ...] = ()
    """Parts of `stacks/program` that it comes after, and keys of addons; one that the site has not is left out."""
    gives: Gives | None = None
    reads_secrets: bool = False
    """Whether what it reads of its namespace may be filled out of the site's store."""


@dataclass(frozen=True, kw_only=True)
class Addon:
    """A program of others that a site may let this program install."""

    key: str
    """By it others need the addon, and `only_with` in versions.yaml names it for definitions in the bundle."""
    switch: str
    """The site's key, with dots, that installs it, or a property of the site."""
    on: str | bool
    """The value by which it does."""
    namespace: str
    charts: tuple[AddonChart, ...] = ()
    section: str = ""
    """The site's section about it, with dots."""
    images: tuple[AddonImage, ...] = ()
    targets: tuple[ScrapeTarget, ...] = ()
    """What of it is measured. Alerts about a job are in the site that has the job."""
    component: AddonComponent | None = None
    """None for what another component installs."""
