"""Who owns which field of an object: moves ownership to the applying manager, and honours ignored fields."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from lab.plugins.kubernetes.diffing import Path, parse_path
from lab.plugins.kubernetes.objects import metadata
from lab.plugins.kubernetes.properties import Tree

# Creating is a plain POST under this name; the first update moves its fields to the resource's own manager.
CREATOR: Final = "pulumi-kubernetes"

_UPDATERS: Final = frozenset({CREATOR, "pulumi-kubernetes.exe", "pulumi-resource-kubernetes"})
# By the first letters of a manager's name: kubectl-set, kubectl-label and kubectl-rollout are taken over as well.
_ABSORBED: Final = (
    ("kubectl", "Apply"),
    ("kubectl", "Update"),
    ("before-first-apply", "Update"),
    *((manager, "Update") for manager in _UPDATERS),
)


def managed_fields(live: Tree) -> list[Tree]:
    """The object's ownership entries, or an empty list."""
    entries = metadata(live).get("managedFields")
    return entries if isinstance(entries, list) else []


def absorb(entries: Sequence[Tree], manager: str) -> list[Tree] | None:
    """Entries after `manager` took over from kubectl and this provider's plain writes; None if nothing moves."""
    moved = [entry for entry in entries if _is_absorbed(entry, manager)]
    if not moved:
        return None
    own = next((entry for entry in entries if _is_own(entry, manager)), None)
    merged = copy.deepcopy(own or {**moved[0], "manager": manager, "operation": "Apply"})
    for entry in moved:
        _merge(merged.setdefault("fieldsV1", {}), entry.get("fieldsV1") or {})
    rest = [entry for entry in entries if not _is_absorbed(entry, manager) and not _is_own(entry, manager)]
    return [merged, *rest]


def _is_own(entry: Tree, manager: str) -> bool:
    return entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource")


def _is_absorbed(entry: Tree, manager: str) -> bool:
    name = str(entry.get("manager"))
    named = any(name.startswith(first) and entry.get("operation") == operation for first, operation in _ABSORBED)
    return named and not entry.get("subresource") and not _is_own(entry, manager)


def _merge(into: Tree, other: Tree) -> None:
    for key, fields in other.items():
        if isinstance(into.get(key), dict) and isinstance(fields, dict):
            _merge(into[key], fields)
        else:
            into.setdefault(key, copy.deepcopy(fields))


def written_by_provider(live: Tree) -> bool:
    """Whether fields are still owned by this provider's plain writes."""
    return any(
        entry.get("operation") == "Update" and entry.get("manager") in _UPDATERS for entry in managed_fields(live)
    )


def leave_ignored(inputs: Tree, live: Tree, ignored: Sequence[str], manager: str) -> Tree:
    """Inputs whose ignored fields stay as they are live: left out where others alone own them, else the live value."""
    result = copy.deepcopy(inputs)
    entries = managed_fields(live)
    for text in ignored:
        for path in _expand(parse_path(text), live, ()):
            ours = any(_owns(entry, path, live) for entry in entries if entry.get("manager") == manager)
            theirs = any(_owns(entry, path, live) for entry in entries if entry.get("manager") != manager)
            if theirs and not ours:
                _remove(result, path)
            else:
                _set(result, path, copy.deepcopy(_value(live, path)))
    return result


def _expand(pattern: Path, node: Any, done: Path) -> Iterator[Path]:
    """The paths that exist in `node`, wildcards resolved."""
    if not pattern:
        yield done
        return
    head, rest = pattern[0], pattern[1:]
    if head == "*":
        keys: Sequence[str | int] = list(node) if isinstance(node, dict) else range(len(_list(node)))
        for key in keys:
            yield from _expand(rest, node[key], (*done, key))
    elif (isinstance(node, dict) and head in node) or (isinstance(head, int) and head < len(_list(node))):
        yield from _expand(rest, node[head], (*done, head))


def _list(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _value(node: Any, path: Path) -> Any:
    for part in path:
        node = node[part]
    return node


def _owns(entry: Tree, path: Path, live: Any) -> bool:
    fields = entry.get("fieldsV1") or {}
    for part in path:
        live = live[part]
        key = f"f:{part}" if isinstance(part, str) else next((k for k in fields if _is_element(k, live, part)), "")
        if key not in fields:
            return False
        fields = fields[key]
    return True


def _is_element(key: str, element: Any, index: int) -> bool:
    kind, _, text = key.partition(":")
    if kind == "i":
        return text == str(index)
    if kind == "v":
        return bool(json.loads(text) == element)
    if kind == "k" and isinstance(element, dict):
        return all(element.get(name) == value for name, value in json.loads(text).items())
    return False


def _remove(node: Any, path: Path) -> None:
    try:
        parent = _value(node, path[:-1])
        del parent[path[-1]]
    except (KeyError, IndexError, TypeError):
        return


def _set(node: Any, path: Path, value: Any) -> None:
    for part in path[:-1]:
        if isinstance(node, dict):
            node = node.setdefault(part, {})
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            return
    last = path[-1]
    fits = isinstance(last, int) and last < len(node) if isinstance(node, list) else isinstance(node, dict)
    if fits:
        container: Any = node
        container[last] = value
