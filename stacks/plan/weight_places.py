"""Which place of a model's weights is better on this site: one shared volume, or a folder on each node's own disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from components.models.weights import HEADROOM
from floor.counts import counted
from stacks.plan.placing import nodes_of
from stacks.proof.figures import shown
from stacks.proof.proof import ENGINE_START_S, Proof
from stacks.site.model import SiteConfig, StorageSpec

# A place is better where all replicas start so many times as fast there, and so many seconds sooner: a folder on each
# node costs every node the bytes of all models, and a download each.
MARGIN, LEAST_S = 2.0, 300.0
# Longhorn's own design for the server of a shared volume (enhancements/20240325-nfs-server-ha.md).
_SERVER_MOVES_S = 60
_LABEL = 12


@dataclass(frozen=True, kw_only=True)
class WeightPlaces:
    """One model, read from either place. Seconds from a scheduled Pod to its first answer."""

    file_bytes: float
    """Of one replica; all read the same."""
    replicas: int
    copy_s: float
    """Over PCIe, meanwhile."""
    reads_bytes_per_s: float
    """One replica from the shared volume."""
    together_bytes_per_s: float
    """All replicas that read that volume at once, from its one server."""
    node_bytes_per_s: float
    """Each replica from its node's disk."""
    download_bytes_per_s: float | None
    """Onto a node's disk; None where no one downloads."""

    def shared_s(self, readers: int = 1) -> float:
        """From the shared volume, where so many start at once."""
        return self._start_s(min(self.reads_bytes_per_s, self.together_bytes_per_s / readers))

    @property
    def node_s(self) -> float:
        """From the node's own disk, however many start: each node reads its own."""
        return self._start_s(self.node_bytes_per_s)

    @property
    def empty_node_s(self) -> float:
        """On a machine that replaces a lost one, whose disk is filled first."""
        return self.node_s + (self.file_bytes / self.download_bytes_per_s if self.download_bytes_per_s else 0.0)

    @property
    def better(self) -> Literal["shared", "nodes", "either"]:
        """The place where all replicas start sooner by the margin."""
        shared, nodes = self.shared_s(self.replicas), self.node_s
        for place, fast, slow in (("nodes", nodes, shared), ("shared", shared, nodes)):
            if slow >= MARGIN * fast and slow - fast >= LEAST_S:
                return "nodes" if place == "nodes" else "shared"
        return "either"

    def _start_s(self, bytes_per_s: float) -> float:
        return max(self.file_bytes / bytes_per_s, self.copy_s) + ENGINE_START_S


def places_of(storage: StorageSpec, proof: Proof) -> WeightPlaces:
    """With the rates that the site sets for either place, or their defaults."""
    return WeightPlaces(
        file_bytes=proof.order.file_bytes,
        replicas=proof.case.replicas,
        copy_s=proof.cold_start["copy_weights"].value,
        reads_bytes_per_s=storage.read_bytes_per_s,
        together_bytes_per_s=storage.shared_read_bytes_per_s or storage.read_bytes_per_s,
        node_bytes_per_s=storage.weights.node_read_bytes_per_s,
        download_bytes_per_s=storage.weights.download_bytes_per_s if storage.weights.downloaded else None,
    )


def place_words(places: WeightPlaces, place: str) -> str:
    """Both starts with their arithmetic, and which place is better. place: the one that the site sets."""
    shared, nodes = places.shared_s(places.replicas), places.node_s
    all_of = f"all {places.replicas} start" if places.replicas > 1 else "it starts"
    rate = min(places.reads_bytes_per_s * places.replicas, places.together_bytes_per_s)
    text = (
        f"{shown(places.file_bytes / 1e9)} GB: {all_of} in {shown(shared)} s from the shared volume, at "
        f"{shown(rate / 1e9)} GB/s in all, and in {shown(nodes)} s from nodes' own disks, at "
        f"{shown(places.node_bytes_per_s / 1e9)} GB/s each"
    )
    if places.better == "either":
        return f"{text}; neither is better by {MARGIN:g} times and {LEAST_S:g} s"
    times = shown(max(shared, nodes) / min(shared, nodes))
    there = "from nodes' own disks" if places.better == "nodes" else "from the shared volume"
    if places.better == place:
        return f"{text}; {times} times as fast {there}, where they are"
    return f"{text}; {times} TIMES AS FAST {there.upper()}: consider storage.weights.place: {places.better}"


def describe_places(site: SiteConfig, proofs: Mapping[str, Proof], node_bytes: float) -> list[str]:
    """Lines for people, for models that read weights. node_bytes: of all of them on one node's disk."""
    if not proofs:
        return []
    places = {name: places_of(site.storage, proof) for name, proof in proofs.items()}
    lines = [f"{name} {place_words(of, site.storage.weights.place)}" for name, of in places.items()]
    lines += [_room(site, node_bytes), *_lost(places)]
    labels = ["place", *[""] * (len(places) - 1), "its room", "its loss"]
    return [f"  {label:<{_LABEL}}{line}" for label, line in zip(labels, lines, strict=True)]


def _room(site: SiteConfig, node_bytes: float) -> str:
    nodes = nodes_of(site)
    there = f"each of {counted(len(nodes), 'GPU node')}" if nodes else "each GPU node"
    needs = "" if site.storage.weights.place == "nodes" else ", a volume in cluster.machines.roles.hgx.volumes"
    return f"nodes' own disks take {_size(node_bytes * HEADROOM)} of {there}, for all models{needs}"


def _lost(places: Mapping[str, WeightPlaces]) -> Iterator[str]:
    """Of the largest model: what a node that is lost or drained costs, in either place."""
    name, of = max(places.items(), key=lambda entry: entry[1].file_bytes)
    yield (
        f"a lost or drained node: of a shared volume the server starts elsewhere within {_SERVER_MOVES_S} s, running "
        f"replicas read nothing, and one of {name} starts in {shown(of.shared_s())} s; on nodes' own disks in "
        f"{shown(of.node_s)} s, on an empty machine in {shown(of.empty_node_s)} s"
    )


def _size(count: float) -> str:
    unit, name = (1e12, "TB") if count >= 1e12 else (1e9, "GB")
    return f"{shown(count / unit)} {name}"
