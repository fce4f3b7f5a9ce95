"""Creates and updates objects: plain create, server-side apply, dry runs for previews, and the retries in between."""

from __future__ import annotations

import copy
import time
from typing import Final

from lab.plugins.kubernetes import ownership
from lab.plugins.kubernetes.checking import unique_name
from lab.plugins.kubernetes.errors import ApiError, KindNotFoundError, ProviderError, conflict_text
from lab.plugins.kubernetes.kinds import is_built_in, is_patch
from lab.plugins.kubernetes.objects import (
    PATCH_FORCE,
    annotated_true,
    gvk_of,
    is_crd,
    metadata,
    name_of,
    namespace_of,
    urn_type,
)
from lab.plugins.kubernetes.properties import Tree
from lab.plugins.kubernetes.session import Operation

# Half a minute in all: what a CRD takes to be served, or a namespace to appear.
_CREATE_ATTEMPTS: Final = 8
_FIRST_PAUSE_S: Final = 0.25
# Controllers that write an object at the same moment get out of the way soon.
_WRITE_ATTEMPTS: Final = 8
_PREVIEW_RETRY_S: Final = 5.0

_EXISTS_HELP: Final = """; a create never overwrites it
  fix: take it over by `pulumi import` or upsertExistingObjects, set some of its fields by a Patch resource,
  or, after a rename in the program, add an alias"""


class NoPreviewError(Exception):
    """The API server cannot foresee the result; the inputs are the best preview."""


def create(operation: Operation, inputs: Tree, manager: str) -> Tree:
    """Create the object and return it as the API server keeps it.

    Waits for a namespace or CRD that is still coming up. Raises ProviderError and its kin, ApiError, or, in a preview,
    NoPreviewError.
    """
    pause = _FIRST_PAUSE_S
    for attempt in range(1, _CREATE_ATTEMPTS + 1):
        try:
            return _create_once(operation, inputs, manager)
        except (ApiError, KindNotFoundError) as error:
            if operation.preview and isinstance(error, ApiError) and error.immutable_field:
                # A replacement under the same name: the old object is still in its place.
                raise NoPreviewError(str(error)) from error
            if isinstance(error, ApiError) and not error.not_found:
                raise _explained(error, manager) from error
            if operation.preview:
                if isinstance(error, ApiError) and not error.namespace_missing:
                    raise
                raise NoPreviewError(str(error)) from error
            if attempt == _CREATE_ATTEMPTS:
                raise
            operation.status(f"retry {attempt}: {error}")
        operation.session.cluster.pause(pause)
        pause *= 2
    raise AssertionError("the last attempt returns or raises")


def _create_once(operation: Operation, inputs: Tree, manager: str) -> Tree:
    session = operation.session
    cluster = session.cluster
    inputs = _placed(operation, inputs)
    gvk, namespace = gvk_of(inputs), namespace_of(inputs)
    patch = is_patch(urn_type(operation.urn), gvk.kind)
    retry = {"retry_s": _PREVIEW_RETRY_S} if operation.preview else {}
    if session.config.server_side_apply and (patch or session.config.upsert):
        force = session.config.patch_force or annotated_true(inputs, PATCH_FORCE) or operation.preview
        name = name_of(inputs)
        return cluster.apply(
            gvk, inputs, name, namespace, manager=manager, force=force, dry_run=operation.preview, **retry
        )
    started = time.time()
    try:
        return cluster.create(gvk, inputs, namespace, manager=ownership.CREATOR, dry_run=operation.preview, **retry)
    except ApiError as error:
        if error.already_exists and not operation.preview:
            ours = _created_by_us(operation, inputs, started)
            if ours is not None:
                return ours
        raise


def _placed(operation: Operation, inputs: Tree) -> Tree:
    """Inputs without the namespace that Check gave an object whose kind it could not know to be cluster-scoped."""
    if not namespace_of(inputs) or operation.session.cluster.namespaced(gvk_of(inputs)) is not False:
        return inputs
    return {**inputs, "metadata": {key: value for key, value in metadata(inputs).items() if key != "namespace"}}


def _created_by_us(operation: Operation, inputs: Tree, started: float) -> Tree | None:
    """The object, if it is the one that an earlier try of this very request made before its answer was lost."""
    live = operation.session.cluster.get(gvk_of(inputs), name_of(inputs), namespace_of(inputs))
    entries = ownership.managed_fields(live)
    stamp = metadata(live).get("creationTimestamp", "")
    created = time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone if stamp else 0.0
    by_us = any(entry.get("manager") == ownership.CREATOR for entry in entries)
    return live if by_us and created >= int(started) and not metadata(live).get("deletionTimestamp") else None


def _explained(error: ApiError, manager: str) -> Exception:
    if error.already_exists:
        return ApiError(error.status, error.reason, error.message + _EXISTS_HELP, error.details)
    if error.field_conflict:
        return ApiError(error.status, error.reason, conflict_text(error, manager), error.details)
    return error


def update(
    operation: Operation, inputs: Tree, old_inputs: Tree, old_live: Tree, manager: str, ignored: list[str]
) -> Tree:
    """Bring the live object to the inputs and return it. Raises ApiError, KindNotFoundError or ProviderError."""
    session = operation.session
    cluster = session.cluster
    inputs = _placed(operation, inputs)
    gvk, name = gvk_of(inputs), name_of(old_live)
    namespace = namespace_of(inputs) or namespace_of(old_live)
    live = cluster.get(gvk, name, namespace)
    if is_crd(inputs):
        return _replace(operation, inputs, live, name, manager)
    if not session.config.server_side_apply:
        body = _merge_patch(old_inputs, ownership.leave_ignored(inputs, live, ignored, manager))
        content = f"application/{'strategic-merge' if is_built_in(gvk) else 'merge'}-patch+json"
        return cluster.patch(
            gvk, body, name, namespace, content=content, manager=ownership.CREATOR, dry_run=operation.preview
        )
    patch = is_patch(urn_type(operation.urn), gvk.kind)
    if not patch and not operation.preview:
        live = _take_over(operation, live, name, namespace, manager)
    body = ownership.leave_ignored(inputs, live, ignored, manager) if ignored else inputs
    if not name_of(body):
        body = {**body, "metadata": {**metadata(body), "name": name}}
    force = (
        session.config.patch_force
        or annotated_true(inputs, PATCH_FORCE)
        or not ownership.managed_fields(live)
        or (operation.preview and ownership.written_by_provider(live))
    )
    retry = {"retry_s": _PREVIEW_RETRY_S} if operation.preview else {}
    try:
        return cluster.apply(
            gvk, body, name, namespace, manager=manager, force=force, dry_run=operation.preview, **retry
        )
    except ApiError as error:
        raise _explained(error, manager) from error


def _replace(operation: Operation, inputs: Tree, live: Tree, name: str, manager: str) -> Tree:
    """Put the inputs in the place of the live object, while others may write its status."""
    cluster = operation.session.cluster
    for attempt in range(1, _WRITE_ATTEMPTS + 1):
        body = copy.deepcopy(inputs)
        body.setdefault("metadata", {})["resourceVersion"] = metadata(live).get("resourceVersion")
        try:
            return cluster.replace(gvk_of(inputs), body, name, manager=manager, dry_run=operation.preview)
        except ApiError as error:
            if error.status != 409 or attempt == _WRITE_ATTEMPTS:
                raise
        live = cluster.get(gvk_of(inputs), name)
    raise AssertionError("the last attempt returns or raises")


def _take_over(operation: Operation, live: Tree, name: str, namespace: str, manager: str) -> Tree:
    """Make the resource's manager the owner of what this provider wrote without applying."""
    cluster = operation.session.cluster
    for attempt in range(1, _WRITE_ATTEMPTS + 1):
        entries = ownership.absorb(ownership.managed_fields(live), manager)
        if entries is None:
            return live
        body = [
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata(live).get("resourceVersion")},
        ]
        try:
            return cluster.patch(gvk_of(live), body, name, namespace, content="application/json-patch+json")
        except ApiError as error:
            if error.status != 409 or attempt == _WRITE_ATTEMPTS:
                raise
        # Another client wrote in between: read again.
        live = cluster.get(gvk_of(live), name, namespace)
    raise AssertionError("the last attempt returns or raises")


def _merge_patch(old: Tree, new: Tree) -> Tree:
    """New values, and null for what was asked for before and no longer is."""
    patch: Tree = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        patch[key] = _merge_patch(before, value) if isinstance(value, dict) and isinstance(before, dict) else value
    return patch


def release(operation: Operation, live: Tree, manager: str) -> None:
    """Give up every field that `manager` applied; fields without another owner go back to their defaults."""
    gvk, name, namespace = gvk_of(live), name_of(live), namespace_of(live)
    meta: Tree = {"name": name} | ({"namespace": namespace} if namespace else {})
    body: Tree = {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": meta}
    try:
        operation.session.cluster.apply(gvk, body, name, namespace, manager=manager, force=False, dry_run=False)
    except ApiError as error:
        required = [cause for cause in error.causes if cause.get("reason") == "FieldValueRequired"]
        if error.status != 422 or not required:
            raise
        raise ProviderError(
            f"this Patch alone owns {required[0].get('field')}, which the object must have: it cannot be given up\n"
            "  fix: let another field manager apply that field first, or leave it as it is with retainOnDelete"
        ) from error


def new_manager_name() -> str:
    """A field manager of the resource's own, so that two resources never share fields by accident."""
    return unique_name("pulumi-kubernetes-")
