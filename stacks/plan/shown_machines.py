"""What each machine of a site is given, as it can be shown: keys and config, with each secret masked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stacks.plan.cluster import ClusterPlan, placeholder_bundle
from stacks.site.machine import MachineKeys, NodeSpec
from stacks.site.machines import MachinesSpec
from talos.secrets.pki import base64_of

MASK = "[secret]"
# Of `cluster.machines`, what each machine has a value of its own for.
_OF_NODES = {"nodes", "roles", *MachineKeys.model_fields}


class _Named(dict[str, str]):
    """For each secret of the site its name, which shows when another one is taken."""

    def __missing__(self, name: str) -> str:
        return f"[secret {name}]"


def shown_machines(plan: ClusterPlan, cilium: str | None) -> dict[str, dict[str, Any]]:
    """Of each machine `keys`, as all levels of the site set them together, and `documents` of its config.

    cilium: what replaces the pod network's manifest.
    """
    documents = plan.documents(placeholder_bundle(MASK), _Named(), cilium)
    of_all = plan.machines.model_dump(mode="json", exclude=_OF_NODES)
    return {
        node.name: {
            "keys": {**of_all, **_own_keys(plan.machines, node.name, node.keys, node.spec)},
            "documents": _masked(documents[node.name]),
        }
        for node in plan.nodes
    }


def _own_keys(machines: MachinesSpec, name: str, keys: MachineKeys, spec: NodeSpec) -> dict[str, Any]:
    """Patches are not merged: each has the level that it is written at in its name."""
    role = machines.roles.get(spec.role, MachineKeys())
    levels = {"": machines.patches, f"roles.{spec.role}.": role.patches, f"nodes.{name}.": spec.patches}
    patches = {f"{level}patches": patches for level, patches in levels.items() if patches}
    own = spec.model_dump(mode="json", exclude=set(MachineKeys.model_fields))
    hgx = {} if spec.role == "hgx" else {"hgx": None}
    return {**keys.model_dump(mode="json", exclude={"patches"}), **own, **patches, **hgx}


def _masked(value: Any) -> Any:
    """With the mask as itself where a document has the secret's base64."""
    if isinstance(value, Mapping):
        return {key: _masked(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(inner) for inner in value]
    return MASK if value == base64_of(MASK) else value
