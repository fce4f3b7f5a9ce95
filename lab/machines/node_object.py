"""A machine's Node object as the kubelet, Talos and NVIDIA's controllers write it, and what NodeRestriction refuses.

Read from siderolabs/talos@v1.13.9 internal/app/machined/pkg/controllers/k8s/node_apply.go:275-466 and
kubernetes/kubernetes@v1.36.3 pkg/kubelet/kubelet_node_status.go:90-344, plugin/pkg/admission/noderestriction/
admission.go:501-621. No I/O.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from floor.taints import Taint
from lab.machines import hardware

Node = dict[str, Any]

_OWNED = "talos.dev/owned-"
_PARTS = ("labels", "annotations", "taints")
_GPU_DOMAINS = ("nvidia.com/", "feature.node.kubernetes.io/")
_RESTRICTED = "node-restriction.kubernetes.io"
_KUBERNETES = ("kubernetes.io", "k8s.io")
_KUBELETS_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_KUBELETS_LABELS = frozenset(
    {
        *("kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch"),
        *("beta.kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type"),
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region"),
        *("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"),
        "node.kubernetes.io/instance-type",
    }
)


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """A machine's node, as its config, schematic and hardware imply it, by who sets what. Quantities as Kubernetes'."""

    name: str
    is_control_plane: bool
    addresses: tuple[str, ...]
    pod_cidr: str
    kubelet_version: str
    api_server_version: str
    """Of a control plane; empty on workers."""
    os_image: str
    boot_id: str
    capacity: dict[str, str]
    kubelet_labels: dict[str, str] = field(default_factory=dict)
    registers_with: tuple[Taint, ...] = ()
    """Taints with which the kubelet registers the node; it has no others."""
    gpu_labels: dict[str, str] = field(default_factory=dict)
    """Those of GPU feature discovery and the GPU operator, which are controllers in the cluster."""
    labels: dict[str, str] = field(default_factory=dict)
    """Those that Talos sets, and so below."""
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    mounts: tuple[str, ...] = ()
    """Where volumes of the site's own are mounted."""
    no_gpus_because: str = ""
    """Why a machine with GPUs in it offers none; empty where all is well."""


def new(facts: NodeFacts) -> Node:
    """What the kubelet creates, with the taints of its configuration.

    Its pod network is the rack's, which on a site the controller manager chooses.
    """
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": facts.name, "labels": dict(facts.kubelet_labels)},
        "spec": {
            "podCIDR": facts.pod_cidr,
            "podCIDRs": [facts.pod_cidr],
            "providerID": f"lab://{facts.name}",
            **({"taints": [taint.wire() for taint in facts.registers_with]} if facts.registers_with else {}),
        },
    }


def gpu_labels(present: Mapping[str, str], facts: NodeFacts) -> dict[str, str | None]:
    """Changes of labels by NVIDIA's controllers, None for one that goes; what Talos sets stays."""
    matching = facts.gpu_labels
    default = {hardware.MIG_LAYOUT: hardware.MIG_DISABLED} if matching and hardware.MIG_LAYOUT not in present else {}
    stale = {
        key: None
        for key in present
        if key.startswith(_GPU_DOMAINS)
        and key not in matching
        and key not in facts.labels
        and key != hardware.MIG_LAYOUT
    }
    return {**stale, **{key: text for key, text in (default | matching).items() if present.get(key) != text}}


def with_settings(present: Node, facts: NodeFacts) -> Node:
    """The Node that Talos's NodeApplyController sends: what the config states, and a note of what is Talos's own."""
    node = copy.deepcopy(present)
    metadata = node["metadata"]
    annotations: dict[str, str] = metadata.setdefault("annotations", {})
    owned = {part: set(json.loads(annotations.get(_OWNED + part) or "[]")) for part in _PARTS}
    _set_texts(metadata.setdefault("labels", {}), owned["labels"], facts.labels)
    _set_texts(annotations, owned["annotations"], facts.annotations)
    taints = _with_taints(node["spec"].pop("taints", None) or [], owned["taints"], facts.taints)
    node["spec"] |= {"taints": taints} if taints else {}
    for part, keys in owned.items():
        annotations.pop(_OWNED + part, None)
        if keys:
            annotations[_OWNED + part] = json.dumps(sorted(keys), separators=(",", ":"))
    # A Node without any has no field for them.
    node["metadata"] = {name: value for name, value in metadata.items() if value != {}}
    return node


def _set_texts(held: dict[str, str], owned: set[str], stated: Mapping[str, str]) -> None:
    for key, text in stated.items():
        if key not in held or held[key] == text:
            owned.add(key)
        if key in owned:
            held[key] = text
    for key in owned - stated.keys():
        held.pop(key, None)
        owned.discard(key)


def _with_taints(held: list[dict[str, str]], owned: set[str], stated: tuple[Taint, ...]) -> list[dict[str, str]]:
    for taint in stated:
        same = [entry for entry in held if entry["key"] == taint.key]
        if not same:
            held = [*held, taint.wire()]
            owned.add(taint.key)
        elif taint.key in owned:
            held = [taint.wire() if entry is same[-1] else entry for entry in held]
        elif same[-1] == taint.wire():
            owned.add(taint.key)
    keys = {taint.key for taint in stated}
    gone = {entry["key"] for entry in held if entry["key"] in owned and entry["key"] not in keys}
    owned -= gone
    return [entry for entry in held if entry["key"] not in gone]


def refusal(before: Node, after: Node) -> str:
    """Why NodeRestriction refuses a kubelet's update of its own node; empty where it lets it through."""
    name = before["metadata"]["name"]
    start = f'nodes "{name}" is forbidden: '
    if (before["spec"].get("taints") or []) != (after["spec"].get("taints") or []):
        return f'{start}node "{name}" is not allowed to modify taints'
    old, made = (node["metadata"].get("labels", {}) for node in (before, after))
    changed = [key for key in sorted(old.keys() | made.keys()) if old.get(key) != made.get(key)]
    forbidden = [key for key in changed if _is_forbidden(key)]
    return f"{start}is not allowed to modify labels: {', '.join(forbidden)}" if forbidden else ""


def _is_forbidden(label: str) -> bool:
    domain = label.rpartition("/")[0]
    if _within(domain, _RESTRICTED):
        return True
    ours = label in _KUBELETS_LABELS or any(_within(domain, allowed) for allowed in _KUBELETS_DOMAINS)
    return any(_within(domain, reserved) for reserved in _KUBERNETES) and not ours


def _within(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")
