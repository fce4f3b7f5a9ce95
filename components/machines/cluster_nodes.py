"""A cluster's machines: installed in parallel, bootstrapped once, and rolled one at a time.

Each machine is two resources. `install` brings it out of maintenance mode, several at once. `roll` holds its config and
image, and is a chain over all nodes, control planes first: so every change of a running cluster goes over it node by
node, each well before the next, and stops at the first that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_command import local

from components.component import Component
from components.machines import machine_commands
from components.machines.machine_commands import LIMITS, Limits, Machine
from components.objects import KEEP
from floor.storage_nodes import REBUILD_S
from talos.secrets import variables

# Estimated, not measured: an HGX board takes 8 to 15 minutes from power to its boot loader, and the installer is about
# a gigabyte. The command gives up first, with a reason.
_INSTALL_S = 3600
_BOOTSTRAP_S = 1200


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """How machines are gone over."""

    image_factory: str | None
    """None where every installer was built before: then no factory is asked."""
    credentials_rotation: int
    """1 or more; counted up, kubeconfig and talosconfig are issued again."""
    at_once: int
    """Machines that are installed side by side."""
    drain_timeout_s: int
    limits: Limits = LIMITS


@dataclass(frozen=True, kw_only=True)
class ClusterNodesArgs:
    """Machines, control planes first, then by name; and what they get."""

    machines: Sequence[Machine]
    configs: pulumi.Output[Mapping[str, str]]
    """Config of each machine by its name; secret."""
    bundle: pulumi.Output[str]
    rollout: Rollout


@dataclass(frozen=True, kw_only=True)
class ClusterNodesHandle:
    """A cluster whose nodes are Ready once `ready` is there."""

    kubeconfig: pulumi.Output[str]
    """Secret."""
    ready: list[pulumi.Resource]
    rolls: Mapping[str, pulumi.Resource]
    """The resource of each node that its lines are shown at."""


class ClusterNodes(Component, token="cluster_nodes:ClusterNodes"):
    """Schematics, installs, bootstrap, kubeconfig, rolls."""

    def __init__(self, name: str, args: ClusterNodesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        self._args = args
        planes = [machine for machine in args.machines if machine.is_control_plane]
        workers = [machine for machine in args.machines if not machine.is_control_plane]
        images = self._schematics(args.rollout.image_factory) if args.rollout.image_factory else []

        installs = self._installs(planes, images)
        founded = self._bootstrap(planes, [installs[machine.name] for machine in planes])
        # A worker asks a control plane for its certificate, over an address that may need etcd: the VIP.
        installs |= self._installs(workers, [*images, founded])
        self.kubeconfig = self._kubeconfig(planes, founded)

        rolls: dict[str, local.Command] = {}
        before: list[pulumi.Resource] = list(installs.values())
        for machine in args.machines:
            rolls[machine.name] = self._roll(machine, installs[machine.name], before)
            before = [installs[machine.name], rolls[machine.name]]
        self.handle = ClusterNodesHandle(kubeconfig=self.kubeconfig, ready=list(rolls.values()), rolls=rolls)
        self.finish(nodes=[machine.name for machine in args.machines])

    def _schematics(self, factory: str) -> list[local.Command]:
        """Makes the factory know each of the machines' schematics."""
        post = machine_commands.post_schematic(factory)
        ids = {machine.schematic: machine.schematic_id for machine in self._args.machines}
        return [
            local.Command(
                f"{self.name}-schematic-{schematic_id[:12]}",
                create=post,
                update=post,
                stdin=text,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for text, schematic_id in sorted(ids.items())
        ]

    def _installs(self, machines: Sequence[Machine], needs: Sequence[pulumi.Resource]) -> dict[str, local.Command]:
        """At most `at_once` side by side: each waits for the one that many places before it."""
        made: list[local.Command] = []
        for place, machine in enumerate(machines):
            lane = (
                made[place - self._args.rollout.at_once : place - self._args.rollout.at_once + 1]
                if place >= self._args.rollout.at_once
                else []
            )
            made.append(self._install(machine, [*needs, *lane]))
        return dict(zip((machine.name for machine in machines), made, strict=True))

    def _install(self, machine: Machine, needs: list[pulumi.Resource]) -> local.Command:
        command = machine_commands.install(machine, self._args.rollout.limits)
        return local.Command(
            f"{self.name}-{machine.name}-install",
            create=command,
            update=command,
            delete=machine_commands.erase(machine),
            stdin=_config_of(machine, self._args.configs),
            environment={variables.SECRETS: self._args.bundle},
            triggers=[machine.replacement],
            logging=local.Logging.STDERR,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=needs,
                delete_before_replace=True,
                # Later configs are `roll`'s; here they would show as a change that does nothing.
                ignore_changes=["stdin"],
                custom_timeouts=pulumi.CustomTimeouts(create=f"{_INSTALL_S}s", update=f"{_INSTALL_S}s"),
            ),
        )

    def _bootstrap(self, planes: Sequence[Machine], needs: list[pulumi.Resource]) -> local.Command:
        return local.Command(
            f"{self.name}-bootstrap",
            create=machine_commands.bootstrap(planes, self._args.rollout.limits),
            update=KEEP,
            environment={variables.SECRETS: self._args.bundle},
            logging=local.Logging.STDERR,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=needs,
                # Once in a cluster's life, whichever control planes come and go later.
                ignore_changes=["create"],
                custom_timeouts=pulumi.CustomTimeouts(create=f"{_BOOTSTRAP_S}s"),
            ),
        )

    def _kubeconfig(self, planes: Sequence[Machine], founded: pulumi.Resource) -> pulumi.Output[str]:
        rotation = self._args.rollout.credentials_rotation
        command = local.Command(
            # Another resource for each rotation: a replacement would run the command that the state has, which names a
            # control plane that may be gone.
            f"{self.name}-kubeconfig{f'-{rotation}' if rotation > 1 else ''}",
            create=machine_commands.kubeconfig(planes, self._args.rollout.limits),
            update=KEEP,
            environment={variables.SECRETS: self._args.bundle},
            triggers=[rotation],
            logging=local.Logging.STDERR,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[founded], additional_secret_outputs=["stdout"], ignore_changes=["create"]
            ),
        )
        return pulumi.Output.secret(command.stdout)

    def _roll(self, machine: Machine, install: local.Command, needs: list[pulumi.Resource]) -> local.Command:
        limits, drain_timeout_s = self._args.rollout.limits, self._args.rollout.drain_timeout_s
        command = machine_commands.roll(machine, limits, drain_timeout_s=drain_timeout_s)
        limit = f"{REBUILD_S + drain_timeout_s + 2 * 3600}s"
        return local.Command(
            f"{self.name}-{machine.name}",
            create=command,
            update=command,
            delete=machine_commands.leave(machine, limits, drain_timeout_s=drain_timeout_s),
            stdin=_config_of(machine, self._args.configs),
            environment={variables.SECRETS: self._args.bundle, variables.KUBECONFIG: self.kubeconfig},
            # By the install's id, a replaced node leaves before its machine is erased and installed again, not after.
            triggers=[machine.replacement, install.id],
            logging=local.Logging.STDERR,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=needs,
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(create=limit, update=limit, delete=limit),
            ),
        )


def _config_of(machine: Machine, configs: pulumi.Output[Mapping[str, str]]) -> pulumi.Output[str]:
    pick: Callable[[Mapping[str, str]], str] = lambda texts: texts[machine.name]  # noqa: E731
    return pulumi.Output.secret(configs.apply(pick))
