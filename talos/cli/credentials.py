"""`kubeconfig`, `client-cert` and `machine-config`: secrets, which are the one thing that these commands print."""

from __future__ import annotations

import click

from talos.cli import inputs
from talos.cli.options import Command, MachineOptions, machine_options
from talos.cli.reaching import reach
from talos.cli.waiting import seconds

_ROLES = (
    "os:admin",
    "os:operator",
    "os:reader",
    "os:etcd:backup",
    "os:image:verifier",
    "os:meta:writer",
    "os:impersonator",
)


@click.command(
    cls=Command,
    help="""\
Print an administrator's kubeconfig, or write it to --output with mode 0600. It is a secret, and another one each time:
Talos signs a new certificate at every call. Waits until the control plane can give it.

  python -m talos kubeconfig --address 10.0.0.2 --output kubeconfig""",
)
@machine_options(timeout="10m")
@click.option("--output", metavar="FILE", help="write it here instead of stdout")
def kubeconfig(options: MachineOptions, *, output: str | None) -> int:
    """Print or write the kubeconfig."""
    machine = reach(options)
    watch = machine.watch(seconds(options.timeout))

    def ask() -> str:
        with machine.configured() as client:
            return client.kubeconfig()

    inputs.write_secret(output, watch.until("for the kubeconfig", ask))
    return 0


@click.command(
    cls=Command,
    help="""\
Have a control plane issue a client certificate, and print a talosconfig around it, or write it to --output with mode
0600. It is a secret. It cannot be revoked, so give it the least role and the shortest lifetime that work.

  python -m talos client-cert --address 10.0.0.2 --role os:reader --lifetime 8h --output talosconfig""",
)
@machine_options(timeout="2m")
@click.option(
    "--role",
    multiple=True,
    type=click.Choice(_ROLES),
    default=("os:reader",),
    metavar="ROLE",
    help=f"repeatable (os:reader); {', '.join(_ROLES)}",
)
@click.option("--lifetime", default="24h", metavar="DURATION", help="24h")
@click.option("--output", metavar="FILE", help="write it here instead of stdout")
def client_certificate(options: MachineOptions, *, role: tuple[str, ...], lifetime: str, output: str | None) -> int:
    """Print or write the talosconfig."""
    machine, lifetime_s = reach(options), seconds(lifetime)
    watch = machine.watch(seconds(options.timeout))

    def ask() -> str:
        with machine.configured() as client:
            return client.generate_client_configuration(roles=role, lifetime_s=lifetime_s).talosconfig

    inputs.write_secret(output, watch.until("for the certificate", ask))
    return 0


@click.command(
    cls=Command,
    help="""\
Print the config that a machine runs by, or write it to --output with mode 0600. A control plane's holds every secret of
the cluster; only os:admin may read it.

  python -m talos machine-config --address 10.0.0.2 --output cp-1.yaml""",
)
@machine_options(timeout="2m")
@click.option("--output", metavar="FILE", help="write it here instead of stdout")
def machine_config(options: MachineOptions, *, output: str | None) -> int:
    """Print or write the machine config."""
    machine = reach(options)
    watch = machine.watch(seconds(options.timeout))

    def ask() -> str:
        with machine.configured() as client:
            return client.machine_config()

    inputs.write_secret(output, watch.until("for the config", ask))
    return 0
