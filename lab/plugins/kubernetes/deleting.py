"""Delete: removes the object, or releases the fields of a Patch, and waits until it is gone."""

from __future__ import annotations

from typing import Final

from lab.plugins.kubernetes.applying import release
from lab.plugins.kubernetes.awaiting.waiting import until_gone
from lab.plugins.kubernetes.errors import ApiError, KindNotFoundError
from lab.plugins.kubernetes.kinds import is_patch
from lab.plugins.kubernetes.objects import DELETION_PROPAGATION, annotation, gvk_of, namespace_of, urn_type
from lab.plugins.kubernetes.properties import Tree
from lab.plugins.kubernetes.session import Operation

_PROPAGATION: Final = {"orphan": "Orphan", "background": "Background"}


def propagation(inputs: Tree) -> str:
    """What becomes of dependants: deleted first, unless the object's annotation sets another."""
    return _PROPAGATION.get(annotation(inputs, DELETION_PROPAGATION).lower(), "Foreground")


def delete(operation: Operation, inputs: Tree, live: Tree, name: str, manager: str) -> None:
    """Delete the object; one that is gone already is fine. Raises PartialError if it will not go in time."""
    cluster = operation.session.cluster
    gvk, namespace = gvk_of(live), namespace_of(live)
    try:
        if operation.session.config.server_side_apply and is_patch(urn_type(operation.urn), gvk.kind):
            release(operation, live, manager)
            return
        current = cluster.delete(gvk, name, namespace, propagation=propagation(inputs))
    except KindNotFoundError:
        # Its CRD is gone, and the objects went with it.
        return
    except ApiError as error:
        if error.not_found:
            return
        raise
    if current.get("kind") != "Status":
        until_gone(operation, inputs, current)
