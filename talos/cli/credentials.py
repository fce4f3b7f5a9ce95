"""`kubeconfig` and `client-cert`: credentials, which are the one thing that these commands print."""

from __future__ import annotations

import argparse

from talos.cli import inputs
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


class Kubeconfig:
    """`kubeconfig`: an administrator's access to Kubernetes."""

    HELP = "get an administrator's kubeconfig"
    DESCRIPTION = """\
Print an administrator's kubeconfig, or write it to --output with mode 0600. It is a secret, and another one each time:
Talos signs a new certificate at every call. Waits until the control plane can give it.

  python -m talos kubeconfig --address 10.0.0.2 --output kubeconfig"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The command's options."""
        inputs.add_machine_arguments(parser, timeout="10m")
        parser.add_argument("--output", metavar="FILE", help="write it here instead of stdout")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print or write the kubeconfig."""
        machine = reach(arguments)
        watch = machine.watch(seconds(arguments.timeout))

        def ask() -> str:
            with machine.configured() as client:
                return client.kubeconfig()

        inputs.write_secret(arguments.output, watch.until("for the kubeconfig", ask))
        return 0


class ClientCertificate:
    """`client-cert`: a talosconfig with a role and a lifetime."""

    HELP = "issue a talosconfig with a role and a lifetime"
    DESCRIPTION = """\
Have a control plane issue a client certificate, and print a talosconfig around it, or write it to --output with mode
0600. It is a secret. It cannot be revoked, so give it the least role and the shortest lifetime that work.

  python -m talos client-cert --address 10.0.0.2 --role os:reader --lifetime 8h --output talosconfig"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The command's options."""
        inputs.add_machine_arguments(parser, timeout="2m")
        parser.add_argument(
            "--role",
            action="append",
            choices=_ROLES,
            metavar="ROLE",
            help=f"repeatable (os:reader); {', '.join(_ROLES)}",
        )
        parser.add_argument("--lifetime", default="24h", metavar="DURATION", help="%(default)s")
        parser.add_argument("--output", metavar="FILE", help="write it here instead of stdout")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print or write the talosconfig."""
        machine, lifetime_s = reach(arguments), seconds(arguments.lifetime)
        watch = machine.watch(seconds(arguments.timeout))

        def ask() -> str:
            with machine.configured() as client:
                roles = tuple(arguments.role or ("os:reader",))
                return client.generate_client_configuration(roles=roles, lifetime_s=lifetime_s).talosconfig

        inputs.write_secret(arguments.output, watch.until("for the certificate", ask))
        return 0
