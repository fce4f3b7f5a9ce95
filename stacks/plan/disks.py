"""Whether the disks of a site hold its volumes with all their copies, and what a lost node leaves.

As Longhorn schedules copies (longhorn-manager v1.12 scheduler/replica_scheduler.go): a copy lies on one disk, no two of
a volume on one node, and a volume counts with its whole size, however much of it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from components.models.weights import volume_gib
from components.specs.database import LEAST_GIB
from components.specs.logs import LEAST_GIB as LEAST_OF_LOGS_GIB
from components.specs.longhorn import MINIMAL_AVAILABLE_PERCENT, OVER_PROVISIONING_PERCENT
from components.specs.monitoring import ALERTMANAGER_VOLUME_GIB
from floor.counts import listed
from floor.problems import Problem
from stacks.plan.database import database_volume_class, own_databases
from stacks.plan.logs import log_volume_class
from stacks.plan.monitoring import longhorn_copies
from stacks.proof.figures import shown
from stacks.site.checks.disks import amount
from stacks.site.model import SiteConfig

DISKS = ("cluster", "machines", "hgx", "storage", "disks")
COPIES = ("storage", "longhorn", "weight_replicas")
_PROMETHEUS = ("monitoring", "volume_gib")
_DATABASE = ("database", "size_gib")
_LOGS = ("logs", "volume_gib")
_LABEL = 12
# Larger than any disk that is sold; no fix names more.
_LARGEST_TB = 200


@dataclass(frozen=True, kw_only=True)
class Disk:
    """One disk of one node."""

    node: str
    name: str
    size_bytes: float
    """At least so large: `min_size`."""
    reserved_bytes: float = 0

    @property
    def usable_bytes(self) -> float:
        """What Longhorn gives to copies, full as they may become: it places none on a disk with less than 25 % left."""
        by_settings = (self.size_bytes - self.reserved_bytes) * OVER_PROVISIONING_PERCENT / 100
        return max(0.0, min(by_settings, self.size_bytes * (1 - MINIMAL_AVAILABLE_PERCENT / 100)))


@dataclass(frozen=True, kw_only=True)
class StoredVolume:
    """The weights of one model, or what monitoring keeps."""

    name: str
    size_bytes: float
    copies: int
    """Each on a disk of another node."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Where all copies are."""

    free_bytes: Mapping[tuple[str, str], float]
    """By node and disk."""
    unplaced: tuple[StoredVolume, ...]
    """Volumes of which a copy finds no disk."""


def disks_of(site: SiteConfig, *, dead: bool = False) -> list[Disk] | None:
    """Disks for Longhorn by node, of dead nodes or not; None where the site does not list its nodes."""
    machines = site.cluster.machines
    if machines is None:
        return None
    storage = machines.hgx.storage
    return [
        Disk(node=node, name=name, size_bytes=amount(disk.min_size)[1], reserved_bytes=disk.reserved_bytes)
        for node, spec in sorted(machines.nodes.items())
        if spec.role == "hgx" and (dead or not spec.dead)
        for name, disk in sorted(storage.disks.items() if storage else ())
    ]


def store(disks: Sequence[Disk], volumes: Sequence[StoredVolume]) -> Stored:
    """Place every copy: large volumes first, each copy on the emptiest disk of a node that has none of it."""
    free = {(disk.node, disk.name): disk.usable_bytes for disk in disks}
    unplaced = []
    for volume in sorted(volumes, key=lambda volume: (-volume.size_bytes, volume.name)):
        taken: set[str] = set()
        for _ in range(volume.copies):
            room = [place for place, left in free.items() if place[0] not in taken and left >= volume.size_bytes]
            if not room:
                unplaced.append(volume)
                break
            place = max(room, key=lambda place: (free[place], place))
            free[place] -= volume.size_bytes
            taken.add(place[0])
    return Stored(free_bytes=free, unplaced=tuple(unplaced))


def weight_volumes(weight_bytes: Mapping[str, float], copies: int) -> list[StoredVolume]:
    """The volumes of these models, by the bytes of their weights."""
    return [
        StoredVolume(name=model, size_bytes=volume_gib(size) * 2**30, copies=copies)
        for model, size in sorted(weight_bytes.items())
    ]


def monitoring_volumes(
    site: SiteConfig, *, weight_copies: int | None = None, prometheus_gib: int | None = None
) -> list[StoredVolume]:
    """Those of Prometheus and Alertmanager, where Longhorn stores them; the numbers are in place of the site's own."""
    copies = longhorn_copies(site, weight_copies)
    if site.monitoring.system != "prometheus_operator" or copies is None:
        return []
    sizes = {"prometheus": prometheus_gib or site.monitoring.volume_gib, "alertmanager": ALERTMANAGER_VOLUME_GIB}
    pods = site.monitoring.copies
    return [
        StoredVolume(name=f"{name}-{pod}" if pods > 1 else name, size_bytes=gib * 2**30, copies=copies)
        for name, gib in sizes.items()
        for pod in range(pods)
    ]


def database_volumes(site: SiteConfig, *, gib: int | None = None) -> list[StoredVolume]:
    """Those of the platform's PostgreSQL, where Longhorn stores them; gib: in place of the site's own size."""
    copies = longhorn_copies(site, storage_class=database_volume_class(site))
    if not own_databases(site) or copies is None:
        return []
    size = (gib or site.database.size_gib) * 2**30
    return [
        StoredVolume(name=f"postgresql-{server}", size_bytes=size, copies=copies)
        for server in range(1, site.database.instances + 1)
    ]


def log_volumes(site: SiteConfig, *, weight_copies: int | None = None, gib: int | None = None) -> list[StoredVolume]:
    """That of the store of logs, where Longhorn stores it; the numbers are in place of the site's own."""
    copies = longhorn_copies(site, weight_copies, storage_class=log_volume_class(site))
    if site.logs.system != "victoria_logs" or copies is None:
        return []
    return [StoredVolume(name="log store", size_bytes=(gib or site.logs.volume_gib) * 2**30, copies=copies)]


def lacking(site: SiteConfig, weight_bytes: Mapping[str, float]) -> Iterator[Problem]:
    """Volumes that the site's own Longhorn could not store; none where the disks are not known.

    Dead nodes count: a site that takes one out is not refused before it has.
    """
    disks, copies = disks_of(site, dead=True), site.storage.longhorn.weight_replicas
    weights, own = weight_volumes(weight_bytes, copies), monitoring_volumes(site)
    logs, databases = log_volumes(site), database_volumes(site)
    if site.storage.system != "longhorn" or disks is None or not [*weights, *own, *logs, *databases]:
        return
    if not disks:
        yield Problem(
            path=("storage", "system"),
            what="is longhorn, and no machine has a disk for it",
            got="longhorn",
            fix="add cluster.machines.hgx.storage with its disks, or set storage.system to external",
        )
        return
    stored = store(disks, [*weights, *own, *logs, *databases])
    if not stored.unplaced:
        return
    largest = max(stored.unplaced, key=lambda volume: volume.size_bytes)
    usable = max(disk.usable_bytes for disk in disks)
    by_weights = bool(store(disks, weights).unplaced)
    rest = ((_DATABASE, [*own, *logs]), (_LOGS, [*own, *databases]))
    by = next((path for path, others in rest if not store(disks, [*weights, *others]).unplaced), _PROMETHEUS)
    one_count = len({volume.copies for volume in stored.unplaced}) == 1
    yield Problem(
        path=DISKS if by_weights else by,
        what=f"{'' if by_weights else 'is too large for the disks, which '}cannot hold "
        f"{_counted(largest.copies, 'copy') if one_count else 'all copies'} of "
        f"{listed([volume.name for volume in stored.unplaced])}: the volume of {largest.name} "
        f"takes {_size(largest.size_bytes)} of one disk, on {_counted(largest.copies, 'node')}",
        got=f"{_places(disks)}, {_size(usable)} usable on the largest: {100 - MINIMAL_AVAILABLE_PERCENT} % of "
        "min_size, and no more than it less reserved_bytes",
        fix="; or ".join(_ways(site, disks, weight_bytes)),
    )


def _ways(site: SiteConfig, disks: Sequence[Disk], weight_bytes: Mapping[str, float]) -> Iterator[str]:
    """What would make room: a smaller volume of Prometheus, larger disks, fewer copies, more nodes."""
    copies, gib = site.storage.longhorn.weight_replicas, site.monitoring.volume_gib
    rows, lines = site.database.size_gib, site.logs.volume_gib

    def volumes(count: int, own_gib: int = gib, rows_gib: int = rows, lines_gib: int = lines) -> list[StoredVolume]:
        return [
            *weight_volumes(weight_bytes, count),
            *monitoring_volumes(site, weight_copies=count, prometheus_gib=own_gib),
            *log_volumes(site, weight_copies=count, gib=lines_gib),
            *database_volumes(site, gib=rows_gib),
        ]

    def fits(there: Sequence[Disk], count: int, **sizes: int) -> bool:
        return not store(there, volumes(count, **sizes)).unplaced

    def holds(size_tb: int) -> bool:
        return fits([replace(disk, size_bytes=max(disk.size_bytes, size_tb * 1e12)) for disk in disks], copies)

    if database_volumes(site) and fits(disks, copies, rows_gib=LEAST_GIB):
        less = _least(lambda less: fits(disks, copies, rows_gib=rows - less), rows - LEAST_GIB)
        yield f"lower {'.'.join(_DATABASE)} from {rows} to {rows - less}"
    if log_volumes(site) and fits(disks, copies, lines_gib=LEAST_OF_LOGS_GIB):
        less = _least(lambda less: fits(disks, copies, lines_gib=lines - less), lines - LEAST_OF_LOGS_GIB)
        yield f"lower {'.'.join(_LOGS)} from {lines} to {lines - less}"
    if fits(disks, copies, own_gib=1):
        least = _least(lambda less: fits(disks, copies, own_gib=gib - less), gib - 1)
        yield f"lower {'.'.join(_PROMETHEUS)} from {gib} to {gib - least}"
    larger = holds(_LARGEST_TB)
    if larger:
        yield (f"take disks of {_least(holds, _LARGEST_TB)}TB or more, and write it as min_size of each")
    fewer = next((count for count in range(copies - 1, 0, -1) if fits(disks, count)), 0)
    if fewer:
        risk = ", with which a lost node takes weights along" if fewer == 1 else ""
        yield f"lower {'.'.join(COPIES)} from {copies} to {fewer}{risk}"
    if all(volume.size_bytes <= max(disk.usable_bytes for disk in disks) for volume in volumes(copies)):
        yield "add nodes of role hgx"
    elif not larger:
        yield "add nodes of role hgx, and take larger disks"


def _least(holds: Callable[[int], bool], largest: int) -> int:
    """The least number that holds, above 0; the largest one does."""
    low, high = 0, largest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def describe_storage(site: SiteConfig, weight_bytes: Mapping[str, float]) -> str:
    """Where all weights find room, as text for people; nothing where the site brings no Longhorn, or has no models."""
    if site.storage.system != "longhorn" or not weight_bytes:
        return ""
    disks, copies, own = disks_of(site), site.storage.longhorn.weight_replicas, monitoring_volumes(site)
    weights = weight_volumes(weight_bytes, copies)
    total = sum(volume.size_bytes for volume in weights) * copies
    if disks is None:
        return (
            f"storage: unknown, as cluster.kubeconfig does not list the nodes. {_counted(copies, 'copy')} of all "
            f"weights take {_size(total)}"
        )
    logs, databases = log_volumes(site), database_volumes(site)
    volumes = [*weights, *own, *logs, *databases]
    stored = store(disks, volumes)
    if stored.unplaced:
        return f"storage: DOES NOT FIT: {listed([volume.name for volume in stored.unplaced])}"
    usable = sum(disk.usable_bytes for disk in disks)
    survives = "the weights of each model outlive any one node" if copies > 1 else "A LOST NODE TAKES WEIGHTS ALONG"
    emptiest = max(stored.free_bytes.values())
    largest = sorted(weights, key=lambda volume: -volume.size_bytes)
    lines = [
        f"storage: fits, {survives}. {_counted(copies, 'copy')} of all weights take {_size(total)} of "
        f"{_size(usable)} on {_places(disks)}",
        _line("volumes", listed([f"{volume.name} {_size(volume.size_bytes)}" for volume in largest])),
    ]
    if own:
        lines.append(_line("monitoring", _own(own)))
    if logs:
        lines.append(_line("logs", _own(logs)))
    if databases:
        lines.append(_line("database", _own(databases)))
    lines.append(_line("free", f"a volume of {_size(emptiest)} at most, on one disk"))
    if copies > 1:
        lines.append(_line("lost node", _rebuilt(disks, volumes)))
    return "\n".join(lines)


def _own(volumes: Sequence[StoredVolume]) -> str:
    """Volumes of monitoring or of PostgreSQL, which are of one class."""
    copies = volumes[0].copies
    risk = ", which a lost node may take along" if copies == 1 else ""
    # One of each pod, which have the same size.
    servers = Counter((volume.name.partition("-")[0], volume.size_bytes) for volume in volumes)
    sizes = [f"{f'{pods} x ' if pods > 1 else ''}{name} {_size(size)}" for (name, size), pods in servers.items()]
    return f"{', '.join(sizes)}; {_counted(copies, 'copy')} of each{risk}"


def _rebuilt(disks: Sequence[Disk], volumes: Sequence[StoredVolume]) -> str:
    """Whether every volume of several copies has all of them again after a node is lost, wherever they were."""
    again = [volume for volume in volumes if volume.copies > 1]
    short = sorted(
        node
        for node in {disk.node for disk in disks}
        if store([disk for disk in disks if disk.node != node], again).unplaced
    )
    if not short:
        return "Longhorn makes its copies again on the others"
    return f"{listed(short)}: a copy less until it is back, as the others have no room for all"


def _size(count: float) -> str:
    unit, name = (1e12, "TB") if count >= 1e12 else (1e9, "GB")
    return f"{shown(count / unit)} {name}"


def _places(disks: Sequence[Disk]) -> str:
    return f"{_counted(len(disks), 'disk')} on {_counted(len({disk.node for disk in disks}), 'node')}"


def _counted(count: int, word: str) -> str:
    if count == 1:
        return f"1 {word}"
    return f"{count} copies" if word == "copy" else f"{count} {word}s"


def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"
