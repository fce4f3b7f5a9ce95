"""The life of one resource: diff, create, read, update, delete, in terms of property trees."""

from __future__ import annotations

from dataclasses import dataclass

from lab.plugins.kubernetes import applying, deleting, diffing
from lab.plugins.kubernetes.awaiting import readiness, waiting
from lab.plugins.kubernetes.checking import is_named
from lab.plugins.kubernetes.errors import ApiError, KindNotFoundError, PartialError, ProviderError
from lab.plugins.kubernetes.kinds import is_patch, patch_replacing_fields, replacing_fields
from lab.plugins.kubernetes.normalizing import keep_zero_values, normalize, prune
from lab.plugins.kubernetes.objects import (
    AUTONAMED,
    FIELD_MANAGER,
    INITIAL_API_VERSION,
    LAST_APPLIED,
    PATCH_FIELD_MANAGER,
    REPLACE_UNREADY,
    SKIP_AWAIT,
    annotated_true,
    annotation,
    checkpoint,
    gvk_of,
    gvk_of_type,
    inputs_to_properties,
    is_crd,
    metadata,
    name_of,
    namespace_of,
    object_id,
    read_checkpoint,
    set_metadata,
    split_id,
    text_property,
    to_object,
    urn_type,
)
from lab.plugins.kubernetes.ownership import CREATOR
from lab.plugins.kubernetes.properties import Tree, has_unknown
from lab.plugins.kubernetes.session import Operation

_UNREACHABLE_FIX = (
    "\n  fix: bring the cluster back or correct the kubeconfig; where it is gone for good, "
    "PULUMI_K8S_DELETE_UNREACHABLE=true drops its resources from the state"
)
_NO_KIND_FIX = "\n  fix: correct apiVersion and kind, or let this resource depend on the CRD"
_NOT_READY_FIX = (
    "\n  fix: correct what the reasons name; the state keeps the resource, the next `pulumi up` goes on with it"
)


@dataclass(frozen=True)
class Stored:
    """A resource as the engine keeps it; `inputs` only where they were read from the cluster."""

    id: str
    state: Tree
    inputs: Tree | None = None


class InitializationError(Exception):
    """The resource exists and is to be kept, but is not ready."""

    def __init__(self, message: str, stored: Stored, reasons: list[str]) -> None:
        super().__init__(message)
        self.stored = stored
        self.reasons = [message, *reasons]


@dataclass(frozen=True)
class Difference:
    """What an update would change."""

    changes: dict[str, diffing.PropertyChange]
    replaces: list[str]
    delete_before_replace: bool
    changed: bool


def _manager(operation: Operation, state: Tree, inputs: Tree) -> str:
    if not operation.session.config.server_side_apply:
        return CREATOR
    chosen = annotation(inputs, PATCH_FIELD_MANAGER) or text_property(state, FIELD_MANAGER)
    return chosen or applying.new_manager_name()


def diff(operation: Operation, state: Tree, news: Tree, ignored: list[str]) -> Difference:
    """Compare the kept live state with new inputs."""
    session = operation.session
    old_inputs, old_live = read_checkpoint(state)
    new = normalize(to_object(news))
    asked = normalize(old_inputs)
    live = prune(old_live, asked)
    # Only read-only copies of the top levels are shared with the arguments.
    live["metadata"] = dict(metadata(live))
    new["metadata"] = dict(metadata(new))
    if session.scope(gvk_of(new)) is not False:
        set_metadata(live, "namespace", namespace_of(live) or "default")
        if isinstance(new["metadata"].get("namespace", ""), str):
            set_metadata(new, "namespace", namespace_of(new) or "default")
    else:
        set_metadata(live, "namespace", "")
        set_metadata(new, "namespace", "")
    for key in ("apiVersion", "kind"):
        live.setdefault(key, new.get(key))
    if name_of(new):
        live["metadata"]["name"] = name_of(old_live)
    if is_patch(urn_type(operation.urn), gvk_of(new).kind):
        replacing = patch_replacing_fields()
    else:
        config = session.config
        replacing = replacing_fields(
            new, mutable_secrets=config.mutable_secrets, mutable_config_maps=config.mutable_config_maps
        )
    changes = diffing.without_ignored(diffing.compare(live, new, asked, replacing), ignored)
    replaces = [path for path, change in changes.items() if change.replaces]
    if annotated_true(new, REPLACE_UNREADY) and _is_unready(operation, new, old_live):
        replaces.append(f'.metadata.annotations["{REPLACE_UNREADY}"]')
    same_place = name_of(new) == name_of(old_live) and (namespace_of(new) or "") == (
        namespace_of(old_live) or namespace_of(live)
    )
    before = bool(replaces) and is_named(new) and not annotated_true(new, AUTONAMED) and same_place
    return Difference(changes, replaces, before, bool(changes or replaces))


def _is_unready(operation: Operation, new: Tree, old_live: Tree) -> bool:
    if operation.session.reachable is None:
        operation.warn("replaceUnready is not looked at: unreachable cluster")
        return False
    if new.get("kind") != "Job":
        operation.warn(f"replaceUnready does nothing for a {new.get('kind')}, only for a Job")
        return False
    try:
        live = operation.session.cluster.get(gvk_of(old_live), name_of(old_live), namespace_of(old_live))
    except (ApiError, ProviderError):
        return False
    return not readiness.job(live).ready


def create(operation: Operation, properties: Tree) -> Stored | None:
    """Create the resource; None means that a preview has nothing to add to the inputs."""
    session = operation.session
    inputs = to_object(properties)
    manager = _manager(operation, {}, inputs)
    if operation.preview and (
        not session.config.server_side_apply
        or session.reachable is None
        or has_unknown(inputs)
        or is_patch(urn_type(operation.urn), gvk_of(inputs).kind)
        or not session.cluster.knows(gvk_of(inputs))
    ):
        return None
    try:
        live = applying.create(operation, inputs, manager)
    except applying.NoPreviewError:
        return None
    except ApiError as error:
        if operation.preview and (error.status == 403 or error.already_exists or _refuses_dry_run(error)):
            return None
        raise ProviderError(f"cannot create {_called(inputs)}: {error}") from error
    except KindNotFoundError as error:
        raise ProviderError(f"cannot create {_called(inputs)}: {error}{_NO_KIND_FIX}") from error
    if operation.preview:
        live.pop("status", None)
        return Stored("", _state(inputs, live, properties, inputs, manager))
    failure = None
    try:
        live = waiting.until_ready(operation, inputs, live, created=True)
    except PartialError as error:
        failure, live = error, error.live
    stored = Stored(object_id(live), _state(inputs, live, properties, inputs, manager))
    if is_crd(inputs):
        session.cluster.kinds_changed()
    if failure is not None:
        raise InitializationError(
            f"created {_called(live)}, which is not ready: {failure}{_NOT_READY_FIX}",
            stored,
            failure.reasons,
        )
    return stored


def _called(obj: Tree) -> str:
    return f"{obj.get('kind')} {object_id(obj)}"


def _refuses_dry_run(error: ApiError) -> bool:
    return error.status == 400 and "does not support dry run" in error.message


def _state(inputs: Tree, live: Tree, given: Tree, first: Tree, manager: str) -> Tree:
    return checkpoint(inputs, live, given, initial_api_version=str(first.get("apiVersion", "")), field_manager=manager)


def update(operation: Operation, resource_id: str, state: Tree, news: Tree, ignored: list[str]) -> Stored | None:
    """Update the resource in place; None means that a preview has nothing to add to the inputs."""
    session = operation.session
    inputs = normalize(to_object(news))
    old_inputs, old_live = read_checkpoint(state)
    manager = _manager(operation, state, inputs)
    first = {"apiVersion": text_property(state, INITIAL_API_VERSION) or old_inputs.get("apiVersion")}
    if operation.preview and (
        session.reachable is None or has_unknown(inputs) or not session.cluster.knows(gvk_of(inputs))
    ):
        return None
    old_manager = _manager(operation, state, old_inputs)
    failure: Exception | None = None
    try:
        live = applying.update(operation, inputs, _with_last_applied(old_inputs, old_live), old_live, manager, ignored)
        if not operation.preview:
            live = waiting.until_ready(operation, inputs, live, created=False)
    except PartialError as error:
        failure, live = error, error.live
    except KindNotFoundError as error:
        raise ProviderError(f"cannot update {_called(inputs)}: {error}{_NO_KIND_FIX}") from error
    except ApiError as error:
        if operation.preview and error.status == 403:
            return None
        refusal = f"cannot update {_called(old_live)}: {error}"
        live = _still_there(operation, old_live, refusal)
        # The state has what was refused, and that it failed, so even the file before it previews an update.
        refused = Stored(resource_id, _state(inputs, live, news, first, manager))
        raise InitializationError(refusal, refused, []) from error
    stored = Stored(resource_id, _state(inputs, live, news, first, manager))
    if isinstance(failure, PartialError):
        raise InitializationError(
            f"updated {_called(live)}, which is not ready: {failure}{_NOT_READY_FIX}",
            stored,
            failure.reasons,
        )
    if session.config.server_side_apply and not operation.preview and old_manager != manager:
        applying.release(operation, live, old_manager)
    if is_crd(inputs) and not operation.preview:
        session.cluster.kinds_changed()
    return stored


def _still_there(operation: Operation, known: Tree, refusal: str) -> Tree:
    """The object as it is after an update was refused. Raises ProviderError, as the update alone does, if it is not."""
    try:
        return operation.session.cluster.get(gvk_of(known), name_of(known), namespace_of(known))
    except (ApiError, ProviderError) as error:
        raise ProviderError(refusal) from error


def _with_last_applied(old_inputs: Tree, old_live: Tree) -> Tree:
    """Providers before 4.0 wrote this annotation by themselves; naming it as asked for lets an update drop it."""
    kept = annotation(old_live, LAST_APPLIED)
    if not kept or annotation(old_inputs, LAST_APPLIED):
        return old_inputs
    meta = metadata(old_inputs)
    annotations = {**(meta.get("annotations") or {}), LAST_APPLIED: kept}
    return {**old_inputs, "metadata": {**meta, "annotations": annotations}}


def read(operation: Operation, resource_id: str, state: Tree, inputs: Tree) -> Stored | None:
    """The resource as it is now; None means that it is gone."""
    session = operation.session
    if session.reachable is None:
        return read_unreachable(operation, resource_id, state, inputs)
    namespace, name = split_id(resource_id)
    if not name:
        raise ProviderError(f'"{resource_id}" names no object: an id is namespace/name, or name alone')
    asked = normalize(to_object(inputs))
    _, old_live = read_checkpoint(state)
    from_cluster = False
    if not asked.get("kind"):
        from_cluster = not old_live.get("kind")
        gvk = gvk_of_type(urn_type(operation.urn)) if from_cluster else gvk_of(old_live)
        asked |= {"apiVersion": gvk.api_version, "kind": gvk.kind.removesuffix("Patch")}
        asked["metadata"] = {"name": name, **metadata(asked)}
        if namespace:
            asked["metadata"].setdefault("namespace", namespace)
    manager = _manager(operation, state, asked)
    first = {"apiVersion": text_property(state, INITIAL_API_VERSION) or asked.get("apiVersion")}
    try:
        live = session.cluster.get(gvk_of(asked), name, namespace_of(asked) or namespace)
    except KindNotFoundError:
        return None
    except ApiError as error:
        if error.not_found:
            return None
        raise
    kept = _inputs_of(live) if from_cluster else keep_zero_values(prune(live, asked), asked)
    stored = Stored(
        resource_id or object_id(live),
        _state(kept, live, inputs, first, manager),
        inputs_to_properties(kept, inputs),
    )
    if not from_cluster and not annotated_true(asked, SKIP_AWAIT):
        reasons = waiting.look_once(operation, asked, live)
        if reasons:
            raise InitializationError(f"{_called(live)} is not ready now", stored, reasons)
    return stored


def read_unreachable(operation: Operation, resource_id: str, state: Tree, inputs: Tree) -> Stored | None:
    """What a refresh of an unreachable cluster finds, by the provider's settings; raises ProviderError by default."""
    config = operation.session.config
    operation.warn(operation.session.unreachable_text)
    if config.delete_unreachable:
        operation.warn("dropped from the state unseen, as deleteUnreachable asks")
        return None
    if config.skip_update_unreachable:
        operation.warn("kept as recorded, as skipUpdateUnreachable asks: the object itself may differ")
        return Stored(resource_id, state, inputs)
    raise ProviderError(f"cannot refresh {resource_id}: {operation.session.unreachable_text}{_UNREACHABLE_FIX}")


def _inputs_of(live: Tree) -> Tree:
    """What a program would have to declare to get this object: everything but status and the server's own metadata."""
    kept = normalize({key: value for key, value in live.items() if key != "status"})
    annotations = dict(metadata(kept).get("annotations") or {})
    for own in ("deployment.kubernetes.io/revision", LAST_APPLIED):
        annotations.pop(own, None)
    if "annotations" in metadata(kept):
        kept["metadata"]["annotations"] = annotations
        if not annotations:
            del kept["metadata"]["annotations"]
    return kept


def delete(operation: Operation, resource_id: str, state: Tree) -> None:
    """Delete the resource and wait until it is gone."""
    session = operation.session
    inputs, live = read_checkpoint(state)
    _, name = split_id(resource_id)
    if session.reachable is None:
        delete_unreachable(operation, resource_id)
        return
    manager = _manager(operation, state, inputs)
    try:
        deleting.delete(operation, inputs, live, name, manager)
    except PartialError as error:
        first = {"apiVersion": text_property(state, INITIAL_API_VERSION)}
        stored = Stored(resource_id, _state(inputs, error.live, state, first, manager))
        raise InitializationError(str(error), stored, error.reasons) from error


def delete_unreachable(operation: Operation, resource_id: str) -> None:
    """Delete nothing of an unreachable cluster, where the provider's settings allow it; raises ProviderError if not."""
    operation.warn(operation.session.unreachable_text)
    if not operation.session.config.delete_unreachable:
        text = f"cannot delete {resource_id}: {operation.session.unreachable_text}{_UNREACHABLE_FIX}"
        raise ProviderError(text)
