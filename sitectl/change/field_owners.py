"""Which fields of a site's objects another manager has set, and how to revert them: from `metadata.managedFields`.

A field that others alone own is in no preview: server-side apply takes away only what its own manager has applied
before, and the engine compares the program with the state. The provider takes over what kubectl has set when it updates
the object for another reason; what other managers have set survives every `up`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from floor.metadata import FIELD_MANAGER, PROTECTED
from policy.model import Resource
from sitectl.change.known_writers import is_expected

# Keys of `fieldsV1` from the root: `f:spec`; items of lists by `k:{"name":"main"}`, `v:"text"` or `i:0`.
Path = tuple[str, ...]
Pointer = tuple[str | int, ...]
Object = Mapping[str, Any]
# What the provider creates objects as. Its next write takes the fields of this manager over, so a default that comes
# back when a field is removed has no other owner.
_CREATOR = "pulumi-kubernetes"
# Marks a value that the engine has encrypted in the state.
_ENCRYPTED = "4dabf18193072939515e22adb298388d"


@dataclass(frozen=True, kw_only=True)
class ForeignField:
    """A field and the manager that has set it."""

    path: str
    """`spec.template.spec.containers[epp].env[DEBUG]`."""
    manager: str


@dataclass(frozen=True, kw_only=True)
class ForeignFields:
    """The fields of one object that others have set."""

    resource: str
    """`Deployment inference-models/glm-5-1-epp`."""
    fields: tuple[ForeignField, ...]
    take_back: tuple[str, ...]
    """Commands, in their order."""

    def record(self) -> dict[str, Any]:
        return asdict(self)


def of_records(records: Any) -> list[ForeignFields]:
    """Out of a saved preview."""
    return [
        ForeignFields(
            resource=str(record["resource"]),
            fields=tuple(ForeignField(path=str(of["path"]), manager=str(of["manager"])) for of in record["fields"]),
            take_back=tuple(map(str, record["take_back"])),
        )
        for record in records or ()
    ]


def label(body: Object) -> str:
    """How people name an object, and how live and declared ones find each other."""
    return Resource(type="kubernetes:", name="", body=body).label


def foreign_fields(declared: Iterable[Object], live: Iterable[Object], *, stack: str) -> list[ForeignFields]:
    """Of each declared object with such fields, by label."""
    by_label = {label(body): body for body in live}
    pairs = ((body, by_label[label(body)]) for body in declared if label(body) in by_label)
    foreign = [_of_object(body, there, stack) for body, there in pairs]
    return sorted((fields for fields in foreign if fields), key=lambda fields: fields.resource)


def _of_object(declared: Object, live: Object, stack: str) -> ForeignFields | None:
    owners = _foreign_owners(live, str((declared["metadata"].get("annotations") or {}).get(FIELD_MANAGER, _CREATOR)))
    pointers = {path: pointer for path in owners if (pointer := _pointer(path, live)) is not None}
    if not pointers:
        return None
    fields = sorted((shown(path), owners[path]) for path in pointers)
    return ForeignFields(
        resource=label(live),
        fields=tuple(ForeignField(path=path, manager=manager) for path, manager in fields),
        take_back=tuple(_take_back(declared, live, pointers, stack)),
    )


def _take_back(declared: Object, live: Object, pointers: Mapping[Path, Pointer], stack: str) -> list[str]:
    up = shlex.join(["pulumi", "up", "--refresh", "--stack", stack])
    if live.get("immutable") and any(path[0] in ("f:data", "f:immutable", "f:type") for path in pointers):
        # Someone has deleted it and made another one in its place, which no one can change either.
        return [shlex.join(["kubectl", "delete", *_named(live)]), up]
    stored = _as_stored(declared)
    # Which keys an encrypted Secret has, only the engine knows. A value of others is wrong in each case, and `up` puts
    # back what it declares.
    hidden = [path for path in pointers if path[0] == "f:data" and _ENCRYPTED in (stored.get("data") or {})]
    ours = [path for path in pointers if path not in hidden and _declares(stored, path)]
    others = {path: pointer for path, pointer in pointers.items() if path not in ours}
    removal = [_removal(live, others)] if others else []
    # `up` comes last: where it updates the object it removes what kubectl has set, and the patch would not find it.
    return [*removal, up] if hidden or ours else removal


def _foreign_owners(live: Object, own: str) -> dict[Path, str]:
    """Manager by field; for a list item that another manager owns completely, only the item."""
    ours: set[Path] = set()
    theirs: dict[Path, str] = {}
    for entry in live["metadata"].get("managedFields") or ():
        manager, paths = str(entry.get("manager")), _owned(entry.get("fieldsV1") or {}, ())
        if manager == own or manager.startswith(_CREATOR):
            ours.update(paths)
        else:
            for path in paths:
                theirs.setdefault(path, manager)
    foreign = {
        path: manager
        for path, manager in theirs.items()
        if path not in ours and not is_expected(manager, live["kind"], shown(path))
    }
    return {
        path: manager
        for path, manager in foreign.items()
        if not any(path[:depth] in foreign for depth in range(1, len(path)))
    }


def _owned(fields: Object, path: Path) -> Iterator[Path]:
    """Paths of values, and of list items whose existence is owned (`.`)."""
    for key, below in fields.items():
        if key == ".":
            if path and not path[-1].startswith("f:"):
                yield path
        elif below:
            yield from _owned(below, (*path, key))
        else:
            yield (*path, key)


def shown(path: Path) -> str:
    """The path as people write it."""
    text = ""
    for key in path:
        form, _, name = key.partition(":")
        if form == "f":
            plain = name.replace("-", "").replace("_", "").isalnum()
            text += f".{name}" if plain else f"[{name}]"
        elif form == "k":
            text += f"[{', '.join(str(value) for value in json.loads(name).values())}]"
        else:
            text += f"[{json.loads(name)}]"
    return text.removeprefix(".")


def _item(items: Any, key: str) -> int | None:
    """Place of the item of a list that a key of `fieldsV1` means."""
    form, _, text = key.partition(":")
    wanted = json.loads(text)
    for place, item in enumerate(items if isinstance(items, list) else []):
        if (form == "i" and place == wanted) or (form == "v" and item == wanted):
            return place
        # What the API server fills in, such as a port's protocol, is missing in what was declared.
        if (
            form == "k"
            and isinstance(item, dict)
            and all(item.get(name, value) == value for name, value in wanted.items())
        ):
            return place
    return None


def _pointer(path: Path, body: Any) -> Pointer | None:
    """Keys and places that lead to the field; None where it is not there."""
    pointer: list[str | int] = []
    for key in path:
        if key.startswith("f:"):
            step: str | int | None = key.removeprefix("f:")
            if not isinstance(body, dict) or step not in body:
                return None
        else:
            step = _item(body, key)
        if step is None:
            return None
        pointer.append(step)
        body = body[step]
    return tuple(pointer)


def _declares(body: Any, path: Path) -> bool:
    """Whether the program declares something of this field, so that `up` can put it back."""
    for depth in range(len(path) + 1):
        pointer = _pointer(path[:depth], body)
        if pointer is None:
            return False
        value = body
        for step in pointer:
            value = value[step]
        if isinstance(value, dict) and _ENCRYPTED in value:
            return True
    return True


def _as_stored(declared: Object) -> Object:
    """A Secret's `stringData` is stored as its `data`."""
    if "stringData" not in declared:
        return declared
    texts = declared["stringData"]
    return {**declared, "data": texts if _ENCRYPTED in texts else {**(declared.get("data") or {}), **texts}}


def _removal(live: Object, pointers: Mapping[Path, Pointer]) -> str:
    """The kubectl command that removes the fields, and nothing where a list has changed meanwhile."""
    operations: list[dict[str, Any]] = []
    # From the last item of a list on, so that no removal moves what is removed after it.
    backwards = sorted(
        pointers.items(),
        key=lambda pair: [(str(step), step) if isinstance(step, str) else ("", step) for step in pair[1]],
        reverse=True,
    )
    for path, pointer in backwards:
        operations += _tests(path, pointer)
        operations.append({"op": "remove", "path": _text(pointer)})
    return shlex.join(
        [
            *("kubectl", "patch", *_named(live)),
            "--type=json",
            f"--field-manager={_manager_of_removal(live)}",
            f"--patch={json.dumps(operations, separators=(',', ':'))}",
        ]
    )


def _named(live: Object) -> list[str]:
    """The object, as kubectl takes it."""
    meta = live["metadata"]
    group = live["apiVersion"].rpartition("/")[0]
    kind = live["kind"].lower() + (f".{group}" if group else "")
    return [f"{kind}/{meta['name']}", *([f"--namespace={meta['namespace']}"] if meta.get("namespace") else [])]


def _manager_of_removal(live: Object) -> str:
    """An object of the front door may be changed as the stack's own manager alone."""
    meta = live["metadata"]
    is_protected = PROTECTED.items() <= (meta.get("labels") or {}).items()
    return str((meta.get("annotations") or {}).get(FIELD_MANAGER, _CREATOR)) if is_protected else _CREATOR


def _tests(path: Path, pointer: Pointer) -> Iterator[dict[str, Any]]:
    """That each item of a list on the way is the one that was meant."""
    for depth, key in enumerate(path):
        form, _, text = key.partition(":")
        place = _text(pointer[: depth + 1])
        if form == "v":
            yield {"op": "test", "path": place, "value": json.loads(text)}
        elif form == "k":
            yield from (
                {"op": "test", "path": f"{place}/{_escaped(name)}", "value": value}
                for name, value in json.loads(text).items()
            )


def _text(pointer: Pointer) -> str:
    return "".join(f"/{_escaped(str(step))}" for step in pointer)


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
