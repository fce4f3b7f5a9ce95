"""Cilium's objects on a running cluster, out of the manifest that Talos made them from.

Talos makes each of them once and changes none. The program applies the same text as the same field manager, so that a
field that a newer chart lacks is removed. The engine keeps each object, whatever the program no longer declares:
without them no pod has a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_command import local

from components.component import Component
from components.machines import machine_commands
from floor.metadata import FIELD_MANAGER, TALOS
from talos.secrets import variables

# Estimated: of each node, until it has pulled the image and its agent is ready. Two nodes are updated at once.
_NODE_S = 150
_LEAST_S = 600
# The place of a kind in the order. All else is read by pods at their start. The operator makes the definitions that
# agents wait for.
_WAVES = {"Namespace": 0, "Deployment": 2, "DaemonSet": 3}
_READ_BY_PODS = 1


@dataclass(frozen=True, kw_only=True)
class PodNetworkArgs:
    """Objects in wire format, and the cluster that has them."""

    objects: Sequence[dict[str, Any]]
    kubeconfig: pulumi.Output[str]
    """Secret."""
    nodes: int
    """Machines of the cluster."""
    operators_fit: bool
    """Whether each of the operator's two pods has a machine; only then is it waited for."""
    needs: Sequence[pulumi.Resource]
    """What must be there before the cluster answers."""


@dataclass(frozen=True, kw_only=True)
class PodNetworkHandle:
    """Every node runs this Cilium once `ready` is there."""

    ready: list[pulumi.Resource]


class PodNetwork(Component, token="pod_network:PodNetwork"):
    """Cilium in waves: namespaces, what its pods read, the operator, then the agents and proxies of each node."""

    def __init__(self, name: str, args: PodNetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        waves: dict[int, list[dict[str, Any]]] = {}
        for body in args.objects:
            waves.setdefault(wave(body), []).append(body)
        made = list(args.needs)
        for _, bodies in sorted(waves.items()):
            made += [
                self.child(
                    _suffix(body),
                    taken_over(body, waited=args.operators_fit or body["kind"] != "Deployment"),
                    depends_on=made,
                    patience_s=max(_LEAST_S, _NODE_S * args.nodes) if body["kind"] == "DaemonSet" else None,
                    retained=True,
                )
                for body in bodies
            ]
        self._leftovers(args, made)
        self.handle = PodNetworkHandle(ready=made)
        self.finish()

    def _leftovers(self, args: PodNetworkArgs, made: Sequence[pulumi.Resource]) -> None:
        """Deletes what the last manifest had and this one lacks. The engine cannot: it keeps each object."""
        command = machine_commands.leftovers()
        local.Command(
            f"{self.name}-leftovers",
            create=command,
            update=command,
            stdin="\n".join(sorted(map(place, args.objects))),
            environment={variables.KUBECONFIG: args.kubeconfig},
            logging=local.Logging.STDERR,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(made)),
        )


def wave(body: dict[str, Any]) -> int:
    """The place of an object in the order."""
    return _WAVES.get(body["kind"], _READ_BY_PODS)


def taken_over(body: dict[str, Any], *, waited: bool) -> dict[str, Any]:
    """The object with Talos as the manager of its fields. waited: `up` waits until it is ready."""
    meta = body["metadata"]
    own = {FIELD_MANAGER: TALOS} | ({} if waited else {"pulumi.com/skipAwait": "true"})
    return {**body, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), **own}}}


def place(body: dict[str, Any]) -> str:
    """The object as a line of `python -m talos leftovers`."""
    meta = body["metadata"]
    name = "/".join(part for part in (meta.get("namespace"), meta["name"]) if part)
    return f"{body['apiVersion']} {body['kind']} {name}"


def _suffix(body: dict[str, Any]) -> str:
    meta = body["metadata"]
    return "-".join(part for part in (body["kind"].lower(), meta.get("namespace"), meta["name"]) if part)
