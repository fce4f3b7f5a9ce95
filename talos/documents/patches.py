"""Strategic merge patches, with the meaning that Talos gives them: for a cluster, a role, a node, in that order.

A patch is a config with few fields. Mappings merge, lists are appended, except where Talos replaces or matches by a
key; `$patch: delete` takes a document, a field, or a list's element away. What Talos would quietly ignore (a null, an
empty value over a set one, a deletion that finds nothing) is an error here, for it is a patch that does not work.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from floor.problems import Path
from talos.documents.document import API_VERSION, Wire, identity
from talos.documents.problems import ConfigError, ConfigProblem, Identity, require_none

Level = Literal["cluster", "role", "node"]

LEVELS: tuple[Level, ...] = ("cluster", "role", "node")

_DELETE = {"$patch": "delete"}

# (document kind, path) -> Talos replaces what is there.
_REPLACED: frozenset[tuple[str, Path]] = frozenset(
    {
        (API_VERSION, ("cluster", "network", "podSubnets")),
        (API_VERSION, ("cluster", "network", "serviceSubnets")),
        (API_VERSION, ("cluster", "apiServer", "auditPolicy")),
        ("NetworkRuleConfig", ("ingress",)),
        ("NetworkRuleConfig", ("portSelector", "ports")),
    }
)
# Arguments of programs: a list given to one takes the place of the one before.
_ARGUMENTS = frozenset(
    (API_VERSION, (*place, "extraArgs"))
    for place in (
        ("machine", "kubelet"),
        ("cluster", "apiServer"),
        ("cluster", "controllerManager"),
        ("cluster", "scheduler"),
        ("cluster", "proxy"),
        ("cluster", "etcd"),
    )
)
# (document kind, path) -> the key that identifies elements, and whether a match is merged or replaced.
_MATCHED: dict[tuple[str, Path], tuple[str, Literal["merge", "replace"]]] = {
    (API_VERSION, ("cluster", "apiServer", "admissionControl")): ("name", "merge"),
    ("ExtensionServiceConfig", ("configFiles",)): ("mountPath", "merge"),
    ("ImageVerificationConfig", ("rules",)): ("image", "replace"),
}


@dataclass(frozen=True, kw_only=True)
class Patch:
    """Documents in wire form, under a name for messages. Their values may be secrets."""

    name: str
    level: Level
    documents: tuple[Mapping[str, Any], ...] = field(repr=False)


def parse_patch(name: str, level: Level, text: str) -> Patch:
    """A patch out of YAML text, one or several documents; ConfigError names the patch and the line."""
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"patch {name}{place}: not YAML", fix="correct the patch's text") from None
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise ConfigError(f"patch {name}: not a mapping", fix="write it as a piece of machine config")
    return Patch(name=name, level=level, documents=tuple(documents))


def apply_patches(documents: Sequence[Wire], patches: Sequence[Patch]) -> list[Wire]:
    """The documents with all patches in: cluster, then role, then node, each level in the order given.

    A document that is not there yet is added. ConfigError names patch and path of each document's first mistake.
    """
    result = {identity(document): document for document in documents}
    problems: list[ConfigProblem] = []
    for patch in sorted(patches, key=lambda patch: LEVELS.index(patch.level)):
        for document in patch.documents:
            try:
                _apply(result, patch, dict(document))
            except ConfigError as error:
                problems += error.problems
    require_none(problems)
    return list(result.values())


@dataclass(frozen=True)
class _Place:
    """Where in which patch the merge is."""

    patch: Patch
    document: Identity
    path: Path = ()

    def at(self, name: str) -> _Place:
        return _Place(self.patch, self.document, (*self.path, name))

    @property
    def key(self) -> tuple[str, Path]:
        return self.document[0], self.path

    def error(self, what: str, fix: str) -> ConfigError:
        problem = ConfigProblem(
            patch=(self.patch.name, self.patch.level), document=self.document, path=self.path, what=what, fix=fix
        )
        return ConfigError.of([problem])


def _apply(documents: dict[Identity, Wire], patch: Patch, document: Wire) -> None:
    place = _Place(patch, identity(document))
    if document.get("$patch") == "delete":
        if place.document not in documents:
            raise place.error("there is no such document to delete", "name one that the config has, or drop the patch")
        if place.document[0] == API_VERSION:
            raise place.error("no machine boots without this document", "delete fields of it instead")
        del documents[place.document]
        return
    if place.document not in documents:
        _refuse_deletions(document, place)
        documents[place.document] = copy.deepcopy(document)
        return
    documents[place.document] = _merged(documents[place.document], document, place)


def _merged(left: Wire, right: Wire, place: _Place) -> Wire:
    """`right` into `left`; deletions of one mapping come before what else it sets."""
    result = dict(left)
    for name, value in right.items():
        if isinstance(value, Mapping) and value.get("$patch") == "delete":
            here = place.at(name)
            if dict(value) != _DELETE:
                raise here.error("$patch: delete is beside other fields", "delete in one patch, set in the next")
            if name not in result:
                raise here.error("there is nothing to delete", "drop the deletion, or correct the path")
            del result[name]
    for name, value in right.items():
        if value != _DELETE:
            _set(result, name, value, place.at(name))
    return result


def _set(target: Wire, name: str, value: Any, place: _Place) -> None:
    if value is None:
        raise place.error("null changes nothing", "use {$patch: delete} to take a field away")
    if name not in target or target[name] is None:
        _refuse_deletions(value, place)
        target[name] = copy.deepcopy(value)
        return
    before = target[name]
    if _shape(before) != _shape(value):
        raise place.error(f"{_shape(value)} cannot be merged into {_shape(before)}", "give the patch the same shape")
    if place.key in _REPLACED or (place.document[0], place.path[:-1]) in _ARGUMENTS:
        _refuse_deletions(value, place)
        target[name] = copy.deepcopy(value)
    elif isinstance(value, Mapping):
        target[name] = _merged(before, dict(value), place)
    elif isinstance(value, list):
        target[name] = _appended(before, value, place)
    else:
        if value in ("", 0) and not isinstance(value, bool) and value != before:
            raise place.error("an empty value does not override in Talos", "delete the field in a patch before")
        target[name] = value


def _appended(left: list[Any], right: list[Any], place: _Place) -> list[Any]:
    result = copy.deepcopy(left)
    for position, element in enumerate(right):
        here = place.at(f"[{position}]")
        if isinstance(element, Mapping) and element.get("$patch") == "delete":
            result.remove(_selected(result, element, here))
    key, how = _MATCHED.get(place.key, ("", "merge"))
    for position, element in enumerate(right):
        here = place.at(f"[{position}]")
        if isinstance(element, Mapping) and element.get("$patch") == "delete":
            continue
        _refuse_deletions(element, here)
        match = next(
            (at for at, candidate in enumerate(result) if key and candidate.get(key) == element.get(key)), None
        )
        if match is None:
            result.append(copy.deepcopy(element))
        elif how == "replace":
            result[match] = copy.deepcopy(element)
        else:
            result[match] = _merged(result[match], element, here)
    return result


def _selected(elements: list[Any], selector: Mapping[str, Any], place: _Place) -> Any:
    """The first element that has the selector's first field; Talos looks at no second one."""
    wanted = next(((name, value) for name, value in selector.items() if name != "$patch"), None)
    if wanted is None:
        raise place.error("the deletion does not name its element", "add a field that identifies it, such as its name")
    name, value = wanted
    for element in elements:
        if isinstance(element, Mapping) and str(element.get(name)) == str(value):
            return element
    raise place.error(f"no element has this {name}", "drop the deletion, or correct it")


def _refuse_deletions(value: Any, place: _Place) -> None:
    """Deletions inside of what is new, or inside a list's element, would find nothing."""
    if isinstance(value, Mapping):
        if "$patch" in value:
            raise place.error("there is nothing to delete here", "drop the deletion, or correct the path")
        for name, item in value.items():
            _refuse_deletions(item, place.at(str(name)))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            _refuse_deletions(item, place.at(f"[{position}]"))


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "a truth value" if isinstance(value, bool) else "a number" if isinstance(value, int | float) else "a text"
