"""The identity of a cluster: its secrets bundle, made once; and a talosconfig for administrators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_command import local

from components.component import Component
from components.machines import machine_commands
from components.machines.machine_commands import Machine
from components.objects import KEEP
from floor.stateful import IDENTITY, Keeping
from talos.secrets import variables


@dataclass(frozen=True, kw_only=True)
class ClusterIdentityArgs:
    """Name of the cluster, its control planes, and how dear its secrets are."""

    cluster: str
    control_planes: Sequence[Machine]
    keeping: Keeping
    """Whether `destroy` refuses to delete the secrets, and removing them from the program keeps them."""
    imported: str | None
    """File with the bundle of a cluster that exists."""
    rotation: int
    """Counted up, the talosconfig is issued again."""


@dataclass(frozen=True, kw_only=True)
class ClusterIdentityHandle:
    """Both are secret."""

    bundle: pulumi.Output[str]
    talosconfig: pulumi.Output[str]


class ClusterIdentity(Component, token="cluster_identity:ClusterIdentity"):
    """Secrets and talosconfig, kept in the encrypted state."""

    def __init__(self, name: str, args: ClusterIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        secrets = self.stateful(
            "secrets",
            IDENTITY,
            lambda logical_name, options: local.Command(
                logical_name,
                create=machine_commands.secrets(args.imported),
                update=KEEP,
                logging=local.Logging.NONE,
                opts=options,
            ),
            keeping=args.keeping,
            secret_outputs=["stdout"],
        )
        bundle: pulumi.Output[str] = pulumi.Output.secret(secrets.stdout)
        issue = machine_commands.talosconfig(args.cluster, args.control_planes)
        talosconfig = local.Command(
            f"{name}-talosconfig",
            create=issue,
            update=issue,
            environment={variables.SECRETS: bundle},
            triggers=[args.rotation],
            logging=local.Logging.STDERR,
            opts=pulumi.ResourceOptions(parent=self, additional_secret_outputs=["stdout"]),
        )
        self.handle = ClusterIdentityHandle(bundle=bundle, talosconfig=pulumi.Output.secret(talosconfig.stdout))
        self.finish()
