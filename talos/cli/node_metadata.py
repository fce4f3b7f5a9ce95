"""Labels, annotations and taints of a Kubernetes node, as the machine's config states them.

Talos keeps them: NodeApplyController sends all of them in one update and notes in annotations which it set (siderolabs/
talos@v1.13.9 internal/app/machined/pkg/controllers/k8s/node_apply.go:275-466). What it cannot do is done here, with the
administrator's credentials:

- On a worker the update has the kubelet's credentials, and NodeRestriction refuses it whole where it changes a taint
  (kubernetes/kubernetes@v1.36.3 plugin/pkg/admission/noderestriction/admission.go:545-549).
- A label or an annotation that another writer set to another value stays as it is: the GPU operator, for one, sets
  `nvidia.com/mig.config` on each node without it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from floor.taints import Taint, read_taint

Node = Mapping[str, Any]
_Part = Literal["labels", "annotations"]
_PARTS: tuple[_Part, ...] = ("labels", "annotations")
_OWNED = "talos.dev/owned-"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"

FIX_MISSING = (
    "Talos sets labels, annotations and taints in one update; on a worker NodeRestriction refuses all of it for one "
    "taint that changes or one label in a domain of Kubernetes: `talosctl logs controller-runtime` has the refusal, at "
    "k8s.NodeApplyController; take the label that it names out of the site's file, then run it again"
)


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What a config states of the machine's node."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: Mapping[str, Taint]
    """By key: Talos keeps one taint per key."""
    is_control_plane: bool

    @classmethod
    def of(cls, config: bytes) -> Stated:
        """Out of a machine config. Talos adds the taint of control planes that take no pods."""
        documents = (document for document in yaml.safe_load_all(config) if isinstance(document, dict))
        base: dict[str, Any] = next((document for document in documents if "kind" not in document), {})
        machine, cluster = base.get("machine") or {}, base.get("cluster") or {}
        is_control_plane = machine.get("type") in {"controlplane", "init"}
        taints = {key: read_taint(key, str(text)) for key, text in (machine.get("nodeTaints") or {}).items()}
        if is_control_plane and not cluster.get("allowSchedulingOnControlPlanes"):
            taints.setdefault(_CONTROL_PLANE, Taint(key=_CONTROL_PLANE, value="", effect="NoSchedule"))
        labels, annotations = (_texts(machine.get(name)) for name in ("nodeLabels", "nodeAnnotations"))
        return cls(labels=labels, annotations=annotations, taints=taints, is_control_plane=is_control_plane)


def correction(node: Node, stated: Stated) -> tuple[dict[str, Any], list[str]]:
    """A merge patch that does what Talos cannot, and its lines of progress; both empty where nothing is left to do.

    The patch holds for this version of the node alone.
    """
    lines: list[str] = []
    metadata: dict[str, Any] = {}
    for part in _PARTS:
        held, owned, texts = _held(node, part), _owned(node, part), getattr(stated, part)
        foreign = {key: text for key, text in texts.items() if held.get(key, text) != text and key not in owned}
        if foreign:
            metadata[part] = foreign
            lines += [f"setting {part[:-1]} {key}, which another writer set" for key in foreign]
    patch: dict[str, Any] = {}
    if not stated.is_control_plane:
        patch = _of_taints(node, stated, metadata, lines)
    if metadata or patch:
        patch["metadata"] = {"resourceVersion": node["metadata"].get("resourceVersion"), **metadata}
    return patch, lines


def _of_taints(node: Node, stated: Stated, metadata: dict[str, Any], lines: list[str]) -> dict[str, Any]:
    current, owned = _taints(node), _owned(node, "taints")
    gone = {key for key in owned if key not in stated.taints}
    wanted = [taint for taint in current if taint.key not in gone and taint.key not in stated.taints]
    wanted += stated.taints.values()
    if gone:
        # Else Talos tries for ever to remove the next taint with this key that anyone sets.
        left = json.dumps(sorted(owned - gone), separators=(",", ":")) if owned - gone else None
        metadata.setdefault("annotations", {})[f"{_OWNED}taints"] = left
    if set(wanted) == set(current):
        return {}
    lines += [f"setting taint {shown(taint)}" for taint in wanted if taint not in current]
    lines += [f"removing taint {shown(taint)}" for taint in current if taint not in wanted]
    named = dict(zip(current, _entries(node), strict=True))
    return {"spec": {"taints": [named.get(taint, taint.wire()) for taint in wanted]}}


def missing(node: Node, stated: Stated) -> list[str]:
    """What the node lacks of what the config states, one phrase each."""
    return [*_missing(node, stated)]


def _missing(node: Node, stated: Stated) -> Iterator[str]:
    for part in _PARTS:
        held = _held(node, part)
        for key, text in sorted(getattr(stated, part).items()):
            # Annotations may be long.
            value = f"={text}" if part == "labels" else ""
            if key not in held:
                yield f"{part[:-1]} {key}{value}"
            elif held[key] != text:
                yield f"{part[:-1]} {key}{value}" + (f" (it has {held[key]!r})" if part == "labels" else " (differs)")
    taints = _taints(node)
    for _, taint in sorted(stated.taints.items()):
        if taint not in taints:
            yield f"taint {shown(taint)}"


def shown(taint: Taint) -> str:
    """As kubectl writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _texts(values: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in (values or {}).items()}


def _held(node: Node, part: _Part) -> Mapping[str, str]:
    return node["metadata"].get(part) or {}


def _owned(node: Node, part: _Part | Literal["taints"]) -> set[str]:
    """Keys that Talos set, and so changes and removes with its config."""
    return set(json.loads(_held(node, "annotations").get(f"{_OWNED}{part}") or "[]"))


def _entries(node: Node) -> list[Mapping[str, Any]]:
    return node.get("spec", {}).get("taints") or []


def _taints(node: Node) -> list[Taint]:
    return [Taint(key=entry["key"], value=entry.get("value", ""), effect=entry["effect"]) for entry in _entries(node)]
