"""What can be planned of a site while some of its keys are wrong, so that all problems are reported at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from floor.problems import Path, Problem
from stacks.site.machine import MachineKeys
from stacks.site.machines import MachinesSpec
from stacks.site.model import SiteConfig

# Keys that every proof starts from.
_OF_ALL_PROOFS: tuple[Path, ...] = (
    ("cluster", "gpu"),
    ("storage", "read_bytes_per_s"),
    ("storage", "shared_read_bytes_per_s"),
    ("storage", "weights", "node_read_bytes_per_s"),
)
# For documentation (RFC 5737), so no machine has an address of them.
_STAND_IN_NETWORKS: Mapping[str, Any] = {
    "nodes": ("0.0.0.0/0",),
    "pods": "192.0.2.0/24",
    "services": "198.51.100.0/24",
}
_Keys = TypeVar("_Keys", bound=MachineKeys)
_OF_THE_NODES = {("nodes",), ("roles",), ("taints",), ("mig",)}


@dataclass(frozen=True, kw_only=True)
class ValidPart:
    """A site without the models that are wrong by themselves; `whole` if none is, and its nodes are right too."""

    site: SiteConfig
    whole: bool


def valid_part(site: SiteConfig, wrong: Sequence[Path]) -> ValidPart:
    """What can be planned of `site` while these paths of it are wrong."""
    # A section with an unknown name is read as the nearest one, and what is wrong in it is reported below its own name.
    sections = {"models", *(str(path[0]) for path in wrong if path and path[0] not in SiteConfig.model_fields)}
    names = {path[1] for path in wrong if path[0:1] and path[0] in sections and len(path) > 1}
    blind = any(path[: len(key)] == key[: len(path)] for path in wrong if path for key in _OF_ALL_PROOFS)
    models = {} if blind else {name: spec for name, spec in site.models.items() if name not in names}
    nodes = any(path[:2] == ("cluster", "machines") and path[2:3] in _OF_THE_NODES for path in wrong)
    whole = not (names or blind or nodes or any(path in {(), ("models",), ("cluster", "machines")} for path in wrong))
    machines = site.cluster.machines
    cluster = site.cluster.model_copy(update={"machines": _valid_machines(machines, wrong) if machines else None})
    return ValidPart(site=site.model_copy(update={"models": models, "cluster": cluster}), whole=whole)


def _valid_machines(machines: MachinesSpec, wrong: Sequence[Path]) -> MachinesSpec:
    """Without wrong patches, machines with a wrong address; with placeholders for wrong parts of the address plan."""
    below = [path[2:] for path in wrong if path[:2] == ("cluster", "machines")]
    nodes = {
        name: _valid_patches(node, below, ("nodes", name))
        for name, node in machines.nodes.items()
        if ("nodes", name, "address") not in below
    }
    roles = {role: _valid_patches(keys, below, ("roles", role)) for role, keys in machines.roles.items()}
    machines = _valid_patches(machines, below, ())
    parts = {path[1] for path in below if path[:1] == ("networks",) and len(path) > 1}
    networks = {key: value for key, value in _STAND_IN_NETWORKS.items() if key in parts}
    if {"vip", "vip_link"} & parts:
        networks |= {"vip": None, "vip_link": None}
    update = {"nodes": nodes, "roles": roles, "networks": machines.networks.model_copy(update=networks)}
    return machines.model_copy(update=update)


def _valid_patches(keys: _Keys, wrong: Sequence[Path], level: Path) -> _Keys:
    """The keys without the patches that are reported already."""
    at = (*level, "patches")
    names = {path[len(at)] for path in wrong if path[: len(at)] == at and len(path) > len(at)}
    patches = {name: patch for name, patch in keys.patches.items() if name not in names}
    return keys.model_copy(update={"patches": patches}) if names else keys


def without_consequences(later: Sequence[Problem], problems: Sequence[Problem]) -> list[Problem]:
    """Without what follows from a key that is wrong: of the key itself, and of a section that lacks it since."""
    wrong = [problem.path for problem in problems]
    return [
        problem
        for problem in later
        if not problem.path or not any(path[: len(problem.path)] == problem.path for path in wrong)
    ]
