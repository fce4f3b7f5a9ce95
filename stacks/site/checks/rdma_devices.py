"""Whether something is there that the RDMA devices of the site's nodes could come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.rdma_devices import RdmaDevicesSpec
from floor.problems import Path, Problem, shown
from stacks.site.machines import HgxSpec
from stacks.site.model import ClusterSpec
from stacks.site.reading.levels import MACHINES, machines_of
from stacks.site.reading.raw import at, mapping

_SECTION: Path = ("cluster", "rdma_devices")
_RDMA: Path = (*MACHINES, "hgx", "rdma")
_DEFAULTS = {key: field.default for key, field in RdmaDevicesSpec.model_fields.items()}
_STACK = str(ClusterSpec.model_fields["gpu_stack"].default)


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the section, as far as the values can be understood."""
    section = mapping(at(values, *_SECTION))
    system = section.get("system", _DEFAULTS["system"])
    if system == "none":
        yield from _unread(section)
    machines = at(values, *MACHINES)
    if system != "network_operator" or not isinstance(machines, Mapping):
        return
    path, got = (*_SECTION, "system"), shown(system)
    if at(values, *_RDMA) in (None, HgxSpec.model_fields["rdma"].default):
        yield Problem(
            path=path,
            what=f"offers RDMA devices, and the machines load no module for them: {'.'.join(_RDMA)} is none",
            got=got,
            allowed="none",
            fix=f"set {'.'.join(_RDMA)} to roce or infiniband, or system to none",
        )
    elif not any(machine.role == "hgx" for machine in machines_of(machines)):
        yield Problem(
            path=path,
            what="offers RDMA devices of nodes with GPUs, and no machine has the role hgx",
            got=got,
            allowed="none",
            fix="set system to none, or add a machine of role hgx",
        )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What the program cannot see, and waits for."""
    if at(values, *_SECTION, "system") != "network_operator":
        return
    path = (*_SECTION, "system")
    if not isinstance(at(values, *MACHINES), Mapping):
        yield Problem(
            path=path,
            what="needs mlx5_ib, ib_uverbs, ib_umad and rdma_ucm on the nodes with GPUs, and the program does not see "
            "which modules the nodes of an existing cluster load: a node without them offers no device",
            fix="load them on each of these nodes before `up`, ib_ipoib too with InfiniBand",
        )
    if (at(values, "cluster", "gpu_stack") or _STACK) == "external":
        yield Problem(
            path=path,
            what="needs the labels pci-15b3.present and pci-10de.present of feature.node.kubernetes.io, which no chart "
            "of this program sets where gpu_stack is external",
            fix="have the cluster's own node feature discovery label network cards (class 02) and GPUs (class 03) by "
            "vendor alone, or set gpu_stack to operator or device_plugin",
        )


def _unread(section: Mapping[str, Any]) -> Iterator[Problem]:
    for key, value in section.items():
        if key in _DEFAULTS and value not in (None, [], _DEFAULTS[key]):
            yield Problem(
                path=(*_SECTION, str(key)),
                what="is set, and system none does not read it",
                allowed="with system network_operator",
                fix="set system to network_operator, or take it out",
            )
