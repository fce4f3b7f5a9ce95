"""What changes between two states of a site: from the engine's preview, or from two sets of declared resources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Literal

from components.specs.model_server import SCALED
from policy.model import Resource
from sitectl.change.saved_previews import SAVE_ONE
from sitectl.shell.errors import SitectlError

Op = Literal["create", "update", "replace", "delete"]
_MISSING: Any = object()
# Pairs of items beyond which lists are compared place by place: a saved preview may be of any size.
_MOST_COMPARED = 1_000_000
# Halves of a replacement, which the engine's own `replace` step shows as a whole.
_HALVES = ("create-replacement", "delete-replaced", "discard-replaced", "remove-pending-replace")
# Fields that Kubernetes does not change in place, by kind; what the provider would report in a preview.
_FIXED: Mapping[str, tuple[str, ...]] = {
    "Deployment": ("spec.selector",),
    "StatefulSet": ("spec.selector", "spec.serviceName", "spec.volumeClaimTemplates"),
    "PersistentVolumeClaim": ("spec.storageClassName", "spec.accessModes", "spec.volumeName"),
    "StorageClass": ("provisioner", "parameters", "reclaimPolicy"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "Job": ("spec.template", "spec.selector"),
    "GatewayClass": ("spec.controllerName",),
}
_FIXED_EVERYWHERE = ("metadata.name", "metadata.namespace", "apiVersion", "kind")


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """One changed leaf. `before` or `after` is None where there is nothing."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens to one resource."""

    op: Op
    type: str
    name: str
    before: Mapping[str, Any] = field(default_factory=dict)
    """Inputs before; empty for a created resource."""
    after: Mapping[str, Any] = field(default_factory=dict)
    """Inputs after; empty for a deleted resource."""
    replaced_by: tuple[str, ...] = ()
    """Properties that force the replacement."""
    touched: tuple[str, ...] = ()
    """Paths that differ, by the provider, where inputs alone do not show it."""
    notes: tuple[str, ...] = ()
    """Messages of the program itself about this resource in a preview."""
    retained: bool = False
    """The engine forgets the object instead of deleting it."""

    @property
    def body(self) -> Mapping[str, Any]:
        """The state that exists: after, or before for what goes."""
        return self.after or self.before

    @property
    def kind(self) -> str:
        return self._resource.kind

    @property
    def label(self) -> str:
        return self._resource.label

    @property
    def _resource(self) -> Resource:
        return Resource(type=self.type, name=self.name, body=self.body)

    def fields(self) -> list[FieldChange]:
        """Changed leaves, sorted by path; for created and deleted resources none."""
        if self.op in ("create", "delete"):
            return []
        return list(_fields("", self.before, self.after))


def of_preview(preview: Mapping[str, Any]) -> list[Change]:
    """Changes of `pulumi preview --json`, in the engine's order. Raises SitectlError for anything else."""
    steps = preview.get("steps")
    if not isinstance(steps, Sequence):
        raise SitectlError(
            "this is not a preview of the engine: it has no steps",
            fix=SAVE_ONE,
        )
    notes: dict[str, list[str]] = {}
    for diagnostic in preview.get("diagnostics") or ():
        notes.setdefault(str(diagnostic.get("urn", "")), []).append(_message(diagnostic))
    changes = []
    for step in steps:
        op, old, new = step.get("op"), step.get("oldState") or {}, step.get("newState") or {}
        kind = (new or old).get("type", "")
        if op in _HALVES or op not in ("create", "update", "replace", "delete") or _is_component(new or old):
            continue
        changes.append(
            Change(
                op=op,
                type=kind,
                name=str(step["urn"]).rpartition("::")[2],
                before={} if op == "create" else old.get("inputs") or {},
                after={} if op == "delete" else new.get("inputs") or {},
                # In an order that is another one at each run.
                replaced_by=tuple(sorted(step.get("replaceReasons") or ())),
                touched=tuple(sorted(step.get("detailedDiff") or {})),
                notes=tuple(notes.get(str(step["urn"]), ())),
                retained=bool(old.get("retainOnDelete")),
            )
        )
    return changes


def _message(diagnostic: Mapping[str, Any]) -> str:
    """A diagnostic's text without the engine's severity prefix."""
    text = str(diagnostic.get("message", "")).strip()
    return text.removeprefix(f"{diagnostic.get('severity', '')}: ")


def between(before: Sequence[Resource], after: Sequence[Resource]) -> list[Change]:
    """Changes between two sets of declared resources, by label; replacements as Kubernetes' own rules give them."""
    old = {(resource.type, resource.label): resource for resource in before}
    new = {(resource.type, resource.label): resource for resource in after}
    # What the program calls the same, as an object that never changes and gets another name with other content.
    gone = {(past.type, past.name): key for key, past in old.items() if key not in new}
    for key, present in new.items():
        if key not in old and (present.type, present.name) in gone:
            old[key] = old.pop(gone.pop((present.type, present.name)))
    changes = []
    for key in sorted({**old, **new}):
        was, now = old.get(key), new.get(key)
        resource = now or was
        assert resource is not None  # noqa: S101 - the key came from one of them
        change = Change(
            op="create" if was is None else "delete" if now is None else "update",
            type=resource.type,
            name=resource.name,
            before=was.body if was else {},
            after=_as_left(was.body, now.body) if was and now else now.body if now else {},
            retained=bool(was and was.retained),
        )
        if change.op != "update":
            changes.append(change)
        elif fields := change.fields():
            fixed = (*_FIXED_EVERYWHERE, *_FIXED.get(change.kind, ()), *_fixed_elsewhere(resource.type))
            forced = tuple(
                leaf.path
                for leaf in fields
                if any(leaf.path == path or leaf.path.startswith((f"{path}.", f"{path}[")) for path in fixed)
            )
            changes.append(
                Change(
                    op="replace" if forced else "update",
                    type=change.type,
                    name=change.name,
                    before=change.before,
                    after=change.after,
                    replaced_by=forced,
                    touched=tuple(leaf.path for leaf in fields),
                    retained=change.retained,
                )
            )
    return changes


def _as_left(was: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the number of replicas that it had, where the cluster sets it from now on: as the engine has it."""
    if SCALED not in ((now.get("metadata") or {}).get("annotations") or {}) or "replicas" not in was.get("spec", {}):
        return now
    return {**now, "spec": {**now["spec"], "replicas": was["spec"]["replicas"]}}


def _fixed_elsewhere(type_: str) -> tuple[str, ...]:
    if type_ == "pulumi:providers:kubernetes":
        return ("clusterIdentifier",)
    return ("triggers",) if type_ == "command:local:Command" else ()


def _is_component(state: Mapping[str, Any]) -> bool:
    kind = str(state.get("type", ""))
    return kind == "pulumi:pulumi:Stack" or kind.startswith("inference-platform:")


def _fields(path: str, before: Any, after: Any) -> list[FieldChange]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [
            leaf
            for key in sorted({*before, *after})
            for leaf in _fields(_join(path, key), before.get(key, _MISSING), after.get(key, _MISSING))
        ]
    if isinstance(before, list) and isinstance(after, list) and _objects(before) and _objects(after):
        return [leaf for place, old, new in _paired(before, after) for leaf in _fields(f"{path}[{place}]", old, new)]
    if before == after:
        return []
    return [
        FieldChange(
            path=path, before=None if before is _MISSING else before, after=None if after is _MISSING else after
        )
    ]


def _join(path: str, key: str) -> str:
    part = key if "." not in key and "/" not in key else f'["{key}"]'
    return part if not path else f"{path}{part}" if part.startswith("[") else f"{path}.{part}"


def _objects(values: list[Any]) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _paired(before: list[Any], after: list[Any]) -> list[tuple[int, Any, Any]]:
    """Items that differ, with their place: what comes or goes in a longer list does not change those behind it."""
    if len(before) == len(after) or len(before) * len(after) > _MOST_COMPARED:
        return [(place, old, new) for place, (old, new) in enumerate(zip_longest(before, after, fillvalue=_MISSING))]
    old_texts, new_texts = (
        [json.dumps(item, sort_keys=True, default=str) for item in items] for items in (before, after)
    )
    differing = []
    for how, start, end, first, last in SequenceMatcher(a=old_texts, b=new_texts, autojunk=False).get_opcodes():
        if how != "equal":
            pairs = enumerate(zip_longest(before[start:end], after[first:last], fillvalue=_MISSING))
            differing += [((start if new is _MISSING else first) + place, old, new) for place, (old, new) in pairs]
    return differing
