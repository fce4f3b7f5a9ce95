"""In which order objects of one bundle are created: what others live in or are described by comes first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.objects import annotation, gvk_of, is_crd, name_of, namespace_of
from lab.plugins.kubernetes.properties import Tree

Identity = tuple[str, str, str, str]

_DEPENDS_ON: Final = "config.kubernetes.io/depends-on"
_REFERENCE: Final = re.compile(r"(?P<group>[^/]*)/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<kind>[^/]+)/(?P<name>[^/]+)")


def _identity(obj: Tree) -> Identity:
    gvk = gvk_of(obj)
    return gvk.group, gvk.kind, namespace_of(obj), name_of(obj)


def dependencies(objects: Sequence[Tree]) -> dict[Identity, list[Identity]]:
    """What each object needs of the others: its namespace, its CRD, and what its depends-on annotation names.

    Raises ProviderError on an annotation that cannot be read.
    """
    namespaces = {name_of(obj): _identity(obj) for obj in objects if obj.get("kind") == "Namespace"}
    crds: dict[tuple[str, str], Identity] = {}
    for obj in objects:
        if is_crd(obj):
            spec = obj.get("spec") or {}
            crds[str(spec.get("group")), str((spec.get("names") or {}).get("kind"))] = _identity(obj)
    known = {_identity(obj) for obj in objects}
    needed: dict[Identity, list[Identity]] = {}
    for obj in objects:
        key = _identity(obj)
        wants = [namespaces[key[2]]] if key[2] in namespaces else []
        wants += [crds[key[:2]]] if key[:2] in crds else []
        wants += [other for other in _explicit(obj) if other in known]
        needed[key] = list(dict.fromkeys(other for other in wants if other != key))
    return needed


def _explicit(obj: Tree) -> list[Identity]:
    dependencies = []
    for text in filter(None, (part.strip() for part in annotation(obj, _DEPENDS_ON).split(","))):
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise ProviderError(
                f'cannot read "{text}" in annotation {_DEPENDS_ON} of {gvk_of(obj).kind} {name_of(obj)}'
            )
        group = "" if match["group"] == "core" else match["group"]
        dependencies.append((group, match["kind"], match["namespace"] or "", match["name"]))
    return dependencies


def in_order(objects: Sequence[Tree], needed: Mapping[Identity, Sequence[Identity]]) -> list[Tree]:
    """The objects so that each comes after what it needs, else in their own order. Raises ProviderError on a cycle."""
    by_identity = {_identity(obj): obj for obj in objects}
    placed: dict[Identity, Tree] = {}

    def place(key: Identity, path: tuple[Identity, ...]) -> None:
        if key in placed:
            return
        if key in path:
            chain = " -> ".join("/".join(part for part in item if part) for item in (*path, key))
            raise ProviderError(f"objects depend on each other in a circle: {chain}")
        for other in needed.get(key, ()):
            place(other, (*path, key))
        placed[key] = by_identity[key]

    for key in by_identity:
        place(key, ())
    return list(placed.values())
