"""Whether each GPU node's own disk holds the weights of all models, and what their source serves to fill them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from components.models.weights import HEADROOM, WeightsPlan
from floor.counts import counted, listed
from floor.model_hub import HUB
from floor.problems import Path, Problem
from stacks.plan.machine_documents import merged_keys
from stacks.plan.placing import nodes_of
from stacks.proof.figures import shown
from stacks.site.checks.disks import amount, least_size
from stacks.site.machine import VolumeSpec
from stacks.site.model import SiteConfig

_WEIGHTS: Path = ("storage", "weights")
_PATH = (*_WEIGHTS, "node_path")
_VOLUMES = "cluster.machines.roles.hgx.volumes"
# Where Talos mounts a volume of the site's own, by its name.
_MOUNTS = "/var/mnt/"


@dataclass(frozen=True)
class _NodeDisk:
    """What a machine gives to weights."""

    node: str
    volume: VolumeSpec | None

    @property
    def size_bytes(self) -> float:
        """At least so large; 0 where nothing of it is sure."""
        place = self.volume.provisioning if self.volume else None
        if place is None:
            return 0.0
        return least_size(place.disk_selector or "") if self.is_whole else amount(place.min_size)[1]

    @property
    def is_whole(self) -> bool:
        """Whether the volume takes a disk for itself, and may have no min_size."""
        return self.volume is not None and self.volume.volume_type == "disk"


def bytes_per_node(stores: Mapping[str, WeightsPlan]) -> float:
    """Of all models that have weights, with all their revisions and what engines compile: any of them may run there."""
    return sum(plan.volume_bytes for plan in stores.values()) * HEADROOM


def lacking_on_nodes(site: SiteConfig, stores: Mapping[str, WeightsPlan]) -> Iterator[Problem]:
    """Machines of the site whose disk for weights is missing or too small; none where the machines are not known."""
    disks, needed = _disks(site) if stores else None, bytes_per_node(stores)
    if disks is None:
        return
    name, path = _volume_name(site), site.storage.weights.node_path
    least = f"{math.ceil(needed / 1e9)}GB"
    example = f"{{provisioning: {{disk_selector: 'disk.serial == \"...\"', min_size: {least}, grow: true}}}}"
    if not name:
        yield Problem(
            path=_PATH,
            what="is not where Talos mounts a volume, so the folder would be on the system disk, or nowhere",
            got=path,
            allowed=f"{_MOUNTS}NAME, with {_VOLUMES}.NAME",
            fix=f"write {_MOUNTS}weights, and add {_VOLUMES}.weights: {example}",
        )
        return
    missing = [disk.node for disk in disks if disk.volume is None]
    folders = [disk.node for disk in disks if disk.volume and disk.volume.volume_type == "directory"]
    small = [disk for disk in disks if disk.volume and disk.node not in folders and disk.size_bytes < needed]
    if missing:
        yield Problem(
            path=_PATH,
            what=f"is no volume of {listed(missing)}",
            got=path,
            fix=f"add {_VOLUMES}.{name}: {example}",
        )
    if folders:
        yield Problem(
            path=_PATH,
            what=f"is a folder on the disk of pods and images of {listed(folders)}, whose kubelet evicts pods when it "
            "fills up",
            got=f"volume_type: directory of the volume {name}",
            fix=f"write it like {name}: {example}",
        )
    for whole in (False, True):
        some = [disk for disk in small if disk.is_whole is whole]
        if not some:
            continue
        smallest = min(some, key=lambda disk: disk.size_bytes)
        more = site.storage.weights.revisions > 2
        stated = "disk.size in disk_selector" if whole else "min_size"
        larger = (
            f"add `&& disk.size >= {least[:-2]}u * GB` to disk_selector"
            if whole
            else f"write min_size: {least} or more"
        )
        yield Problem(
            path=_PATH,
            what=f"has no room on {listed([disk.node for disk in some])} for {_models(stores)}, each with "
            f"{counted(site.storage.weights.revisions, 'revision')} and a tenth more: {_size(needed)} per node",
            got=f"{stated} of the volume {name}: "
            + (_size(smallest.size_bytes) if smallest.size_bytes else "none, so that any size will do"),
            fix=f"{larger} for the volume {name} of these machines, on a disk that has it"
            + (f"; or lower storage.weights.revisions from {site.storage.weights.revisions}" if more else "")
            + "; or take models off the site",
        )


def describe_node_weights(site: SiteConfig, stores: Mapping[str, WeightsPlan]) -> str:
    """What each node holds and what the source serves, as text for people; nothing without weights."""
    if not stores:
        return ""
    path, disks = site.storage.weights.node_path, _disks(site)
    needed, revision = bytes_per_node(stores), sum(_revision_bytes(site, plan) for plan in stores.values())
    if disks is None:
        served = f"; the source serves {_size(revision)} to each, to one node first and then to all others at once"
        return (
            f"weights: on each node's own disk. Each GPU node needs {_size(needed)} free in {path}, a folder that you "
            f"make{served if site.storage.weights.downloaded else ''}"
        )
    least = min((disk.size_bytes for disk in disks), default=0.0)
    lines = [
        f"weights: fit on each node's own disk: {_size(needed)} of {_size(least)} in {path}, on "
        f"{counted(len(disks), 'node')}"
    ]
    if site.storage.weights.downloaded:
        rate = site.storage.weights.download_bytes_per_s
        waits = "one node first, then all others at once" if len(disks) > 1 else "that one node"
        lines.append(
            f"  source      serves {_size(revision)} to each, {_size(revision * len(disks))} in all: to {waits}, each "
            f"at up to {_size(rate)}/s per model"
        )
    return "\n".join(lines)


def many_downloads(site: SiteConfig, stores: Mapping[str, WeightsPlan]) -> Iterator[Problem]:
    """A site whose every node downloads over the internet what one server of the site could hold for all."""
    of_hub = [plan for plan in stores.values() if plan.order.endpoint == HUB]
    if site.storage.weights.place == "shared" or not site.storage.weights.downloaded or not of_hub:
        return
    disks = _disks(site) or []
    if len(disks) > 1:
        revision = sum(_revision_bytes(site, plan) for plan in of_hub)
        yield Problem(
            path=(*_WEIGHTS, "source"),
            what=f"is the hub, and each of {len(disks)} nodes downloads {_size(revision)} from it: "
            f"{_size(revision * len(disks))} in all, again for each new commit",
            got=site.storage.weights.source,
            fix="take a server of the site as source, such as mirror or bucket, which downloads once",
        )


def _disks(site: SiteConfig) -> list[_NodeDisk] | None:
    nodes, machines = nodes_of(site), site.cluster.machines
    if nodes is None or machines is None:
        return None
    name = _volume_name(site)
    return [_NodeDisk(node.name, merged_keys(machines, machines.nodes[node.name]).volumes.get(name)) for node in nodes]


def _volume_name(site: SiteConfig) -> str:
    """Of the volume that Talos mounts as the folder; empty where it mounts none there."""
    name = site.storage.weights.node_path.removeprefix(_MOUNTS)
    return "" if "/" in name else name


def _revision_bytes(site: SiteConfig, plan: WeightsPlan) -> float:
    return plan.volume_bytes / site.storage.weights.revisions


def _models(stores: Mapping[str, WeightsPlan]) -> str:
    return listed(sorted(stores))


def _size(count: float) -> str:
    unit, name = next(((size, name) for size, name in ((1e12, "TB"), (1e9, "GB")) if count >= size), (1e6, "MB"))
    return f"{shown(count / unit)} {name}"
