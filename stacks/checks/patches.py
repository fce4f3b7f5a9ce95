"""Patches may set only what no key of a site sets: otherwise machines would differ from what the site says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stacks.loading.levels import MACHINES
from stacks.loading.problems import Path, Problem
from stacks.loading.raw import at, found, mapping

_KEPT = "the cluster's secrets, which `up` makes and keeps"
# Field of a machine config -> the key that sets it. The more exact field comes first.
_SAID_BY: Mapping[tuple[str, ...], str] = {
    ("machine", "type"): "nodes.<name>.role",
    ("machine", "install", "image"): "image_factory and extensions, out of which each machine's installer is named",
    ("machine", "install", "disk"): "install_disk",
    ("machine", "install", "diskSelector"): "install_disk",
    ("machine", "network", "hostname"): "the node's own key below nodes",
    ("machine", "network", "interfaces"): "links, bonds and vlans",
    ("machine", "network", "nameservers"): "resolvers",
    ("machine", "kubelet", "nodeIP"): "networks.nodes",
    ("machine", "kubelet", "image"): "the pinned Kubernetes version",
    ("machine", "registries"): "registries",
    ("machine", "time"): "time_servers",
    ("machine", "token"): _KEPT,
    ("machine", "ca"): _KEPT,
    ("cluster", "id"): _KEPT,
    ("cluster", "secret"): _KEPT,
    ("cluster", "token"): _KEPT,
    ("cluster", "ca"): _KEPT,
    ("cluster", "aggregatorCA"): _KEPT,
    ("cluster", "serviceAccount"): _KEPT,
    ("cluster", "secretboxEncryptionSecret"): _KEPT,
    ("cluster", "aescbcEncryptionSecret"): _KEPT,
    ("cluster", "etcd", "ca"): _KEPT,
    ("cluster", "controlPlane", "endpoint"): "endpoint",
    ("cluster", "controlPlane", "localAPIServerPort"): "endpoint, whose port is 6443",
    ("cluster", "clusterName"): "name, at the top of the site",
    ("cluster", "network", "podSubnets"): "networks.pods",
    ("cluster", "network", "serviceSubnets"): "networks.services",
    ("cluster", "network", "dnsDomain"): "networks.dns_domain",
    ("cluster", "network", "cni"): "cni",
    ("cluster", "allowSchedulingOnControlPlanes"): "nodes.<name>.schedulable",
    ("cluster", "discovery"): "discovery",
}
_LEVELS = ("patches.<name>", "roles.<name>.patches.<name>", "nodes.<name>.patches.<name>")
# Document kinds that `up` makes from one key.
_DOCUMENTS = {
    "HostnameConfig": "the node's own key below nodes",
    "Layer2VIPConfig": "networks.vip and networks.vip_link",
}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Patches that set what a key of the site sets."""
    machines = at(values, *MACHINES)
    for level in _LEVELS:
        for path, patch in found(machines, level):
            yield from _of_patch((*MACHINES, *path), mapping(patch))


def _of_patch(path: Path, patch: Mapping[str, Any]) -> Iterator[Problem]:
    kind = patch.get("kind")
    if isinstance(kind, str) and kind in _DOCUMENTS:
        yield _said_elsewhere((*path, "kind"), kind, _DOCUMENTS[kind])
    elif kind is None:
        for field, key in _SAID_BY.items():
            if _sets(patch, field):
                yield _said_elsewhere((*path, *field), ".".join(field), key)


def _said_elsewhere(path: Path, what: str, key: str) -> Problem:
    return Problem(
        path=path,
        what=f"sets {what}, which {key} decides; the proof, the plan and the upgrade would not know of it",
        fix="take it out of the patch" + ("" if key is _KEPT else f", and use {key}"),
    )


def _sets(patch: Any, field: tuple[str, ...]) -> bool:
    above = at(patch, *field[:-1]) if len(field) > 1 else patch
    return isinstance(above, Mapping) and field[-1] in above
