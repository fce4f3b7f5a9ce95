"""A cluster from machines in maintenance mode: secrets, configs, Ready nodes, and their report in a preview."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.component import Component
from components.machines.cluster_identity import ClusterIdentity, ClusterIdentityArgs
from components.machines.cluster_nodes import ClusterNodes, ClusterNodesArgs, Rollout
from components.machines.cluster_preview import Announced, announce
from components.machines.credential_ends import ends_in_unix_s, warn_of_ends
from components.machines.machine_commands import Machine
from floor.stateful import Keeping
from talos.secrets import bundle as secrets

# Secrets bundle, further secrets of the site by their key, inline manifest -> config of each machine by its name.
Configs = Callable[[secrets.SecretsBundle, Mapping[str, str], str | None], Mapping[str, str]]


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    """Machines, control planes first, then by name; and how they become a cluster."""

    cluster: str
    """Its name in talosconfig and kubeconfig."""
    machines: Sequence[Machine]
    configs: Configs
    secret_texts: Mapping[str, pulumi.Output[str]]
    rollout: Rollout
    talos_version: str
    keeping: Keeping
    """Whether `destroy` may delete the cluster's secrets."""
    imported: str | None
    cilium: str | None
    """Inline manifest of the pod network; None where the site brings it."""


@dataclass(frozen=True, kw_only=True)
class ClusterHandle:
    """A cluster whose nodes are Ready once `ready` is there. Both credentials are an administrator's, and secret."""

    kubeconfig: pulumi.Output[str]
    talosconfig: pulumi.Output[str]
    ends: Mapping[str, Mapping[str, pulumi.Output[int]]]
    """When each credential and authority ends, in seconds since 1970."""
    ready: list[pulumi.Resource]


class Cluster(Component, token="cluster:Cluster"):
    """Everything between an empty rack and Ready nodes."""

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        here = pulumi.ResourceOptions(parent=self)
        planes = [machine for machine in args.machines if machine.is_control_plane]
        identity = ClusterIdentity(
            f"{name}-identity",
            ClusterIdentityArgs(
                cluster=args.cluster,
                control_planes=planes,
                keeping=args.keeping,
                imported=args.imported,
                rotation=args.rollout.credentials_rotation,
            ),
            here,
        ).handle
        configs = self._configs(args, identity.bundle)
        nodes = ClusterNodes(
            f"{name}-nodes",
            ClusterNodesArgs(machines=args.machines, configs=configs, bundle=identity.bundle, rollout=args.rollout),
            here,
        ).handle
        self.preview = announce(
            [
                Announced(
                    machine=machine,
                    config=configs.apply(lambda texts, key=machine.name: texts[key]),  # type: ignore[misc]
                    resource=nodes.rolls[machine.name],
                )
                for machine in args.machines
            ],
            identity.bundle,
            nodes.kubeconfig,
            imported=args.imported,
            factory=args.rollout.image_factory,
            talos_version=args.talos_version,
            at_once=args.rollout.at_once,
            limits=args.rollout.limits,
        )
        kubeconfig, talosconfig, bundle = nodes.kubeconfig, identity.talosconfig, identity.bundle
        warn_of_ends(kubeconfig=kubeconfig, talosconfig=talosconfig, bundle=bundle)
        self.handle = ClusterHandle(
            kubeconfig=kubeconfig,
            talosconfig=talosconfig,
            ends=ends_in_unix_s(kubeconfig=kubeconfig, talosconfig=talosconfig, bundle=bundle),
            ready=nodes.ready,
        )
        self.finish()

    def _configs(self, args: ClusterArgs, bundle: pulumi.Output[str]) -> pulumi.Output[Mapping[str, str]]:
        def made(known: Mapping[str, Any]) -> Mapping[str, str]:
            return args.configs(secrets.load(known["bundle"]), known["texts"], args.cilium)

        return pulumi.Output.secret(pulumi.Output.all(bundle=bundle, texts=dict(args.secret_texts)).apply(made))
