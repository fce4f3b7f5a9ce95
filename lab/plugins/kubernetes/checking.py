"""Check: completes the program's inputs with a name, a namespace and the API server's spelling."""

from __future__ import annotations

import copy
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.kinds import built_in_scope, is_list, is_patch
from lab.plugins.kubernetes.normalizing import normalize
from lab.plugins.kubernetes.objects import (
    AUTONAMED,
    GroupVersionKind,
    annotated_true,
    gvk_of,
    metadata,
    name_of,
    namespace_of,
    set_annotation,
    set_metadata,
    to_object,
    urn_name,
    urn_type,
)
from lab.plugins.kubernetes.properties import UNKNOWN, Tree

_RANDOM_CHARACTERS: Final = 8
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


@dataclass(frozen=True, kw_only=True)
class Naming:
    """How an unnamed object gets its name: the engine's seed and what it proposes or forbids."""

    seed: bytes = b""
    proposed: str = ""
    disabled: bool = False


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """What Check needs to know about the provider; `scope` shows whether a kind is namespaced, None if unknown."""

    server_side_apply: bool
    default_namespace: str
    managed_by: str
    scope: Callable[[GroupVersionKind], bool | None]


def unique_name(prefix: str, seed: bytes = b"") -> str:
    """`prefix` and eight hexadecimal digits, the same ones for the same seed."""
    if not seed:
        return prefix + secrets.token_hex(_RANDOM_CHARACTERS // 2)
    return prefix + hashlib.sha256(seed).hexdigest()[:_RANDOM_CHARACTERS]


def is_named(obj: Tree) -> bool:
    """Whether the object's name is given, be it unknown yet."""
    return name_of(obj) != "" or metadata(obj).get("name") is UNKNOWN


def check(urn: str, old_inputs: Tree, new_inputs: Tree, naming: Naming, context: CheckContext) -> Tree:
    """The object that Diff, Create and Update will get for these inputs; property trees in, plain object out.

    Raises ProviderError for what can never be created.
    """
    old = to_object(old_inputs)
    new = normalize(copy.deepcopy(to_object(new_inputs)))
    gvk = gvk_of(new)
    patch = is_patch(urn_type(urn), gvk.kind)
    if is_list(gvk):
        raise ProviderError(
            f"a {gvk.kind} cannot be a resource, the API server keeps no lists\n"
            "  fix: declare each item as a resource of its own"
        )
    if patch and not context.server_side_apply:
        raise ProviderError(
            "a Patch needs server-side apply, and this provider has enableServerSideApply off\n"
            "  fix: turn it on, or declare the whole object"
        )
    if patch and not is_named(new):
        raise ProviderError("a Patch without metadata.name: it must name the object that it changes")
    if old:
        _keep_name(new, old)
        if _is_managed_by(old, context.managed_by):
            _label(new, context.managed_by)
    else:
        _assign_name(new, urn, naming)
        if not context.server_side_apply:
            _label(new, context.managed_by)
    if not is_named(new) and metadata(new).get("generateName") and context.server_side_apply:
        raise ProviderError(
            "metadata.generateName does not go with server-side apply\n  fix: set metadata.name, or neither"
        )
    if context.default_namespace and not namespace_of(new) and metadata(new).get("namespace") is not UNKNOWN:
        scope = context.scope(gvk)
        # An unknown kind is most likely a custom one in a namespace; Create corrects it if not.
        if scope if scope is not None else built_in_scope(gvk) in (True, None):
            set_metadata(new, "namespace", context.default_namespace)
    return new


def _keep_name(new: Tree, old: Tree) -> None:
    if not is_named(new) and annotated_true(old, AUTONAMED):
        set_metadata(new, "name", name_of(old))
        set_annotation(new, AUTONAMED, "true")


def _assign_name(new: Tree, urn: str, naming: Naming) -> None:
    if is_named(new) or metadata(new).get("generateName"):
        return
    if naming.disabled:
        raise ProviderError("metadata.name is missing, and the stack's autonaming makes none up (mode: disabled)")
    set_metadata(new, "name", naming.proposed or unique_name(f"{urn_name(urn)}-", naming.seed))
    set_annotation(new, AUTONAMED, "true")


def _label(obj: Tree, value: str) -> None:
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        return
    labels = meta.setdefault("labels", {})
    if isinstance(labels, dict):
        labels[_MANAGED_BY] = value


def _is_managed_by(obj: Tree, value: str) -> bool:
    labels = metadata(obj).get("labels")
    return isinstance(labels, dict) and labels.get(_MANAGED_BY) in (value, UNKNOWN)
