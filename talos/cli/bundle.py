"""`secrets` and `talosconfig`: a cluster's identity, made or taken over, and credentials issued from it offline."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import get_args

from talos import secrets, talosconfig
from talos.cli import inputs
from talos.cli.failures import InputError
from talos.cli.waiting import seconds


class Secrets:
    """`secrets`: a secrets bundle."""

    HELP = "make a new cluster's secrets, or check and print those of one that exists"
    DESCRIPTION = """\
Print a secrets bundle in the format of `talosctl gen secrets`: a new one, or, with --import, the one in a file after
checking it. Whoever has it owns the cluster.

  python -m talos secrets --output secrets.yaml"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--import", dest="imported", metavar="FILE", help="take this bundle instead of a new one")
        parser.add_argument("--output", metavar="FILE", help="write it here, mode 0600, instead of stdout")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print or write the bundle."""
        if arguments.imported:
            bundle = secrets.load(inputs.text_of(arguments.imported, "secrets bundle"))
        else:
            bundle = secrets.generate()
        inputs.write_secret(arguments.output, bundle.export())
        return 0


class IssuedTalosconfig:
    """`talosconfig`: credentials for people."""

    HELP = "issue a talosconfig from the secrets bundle, without asking any machine"
    DESCRIPTION = f"""\
Print a talosconfig signed by the Talos CA of the bundle in ${inputs.SECRETS_VARIABLE}. It is a secret, and cannot be
taken back: give it the least role and the shortest life that will do.

  python -m talos talosconfig --context prod --endpoint 10.0.0.2 --role os:reader --lifetime 8h"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--context", required=True, metavar="NAME", help="the cluster's name")
        parser.add_argument("--endpoint", action="append", required=True, metavar="HOST", help="control plane")
        parser.add_argument("--node", action="append", default=[], metavar="HOST", help="whom calls are for")
        parser.add_argument("--role", choices=get_args(talosconfig.Role), default="os:reader", help="%(default)s")
        parser.add_argument("--lifetime", default="24h", metavar="DURATION", help="%(default)s")
        parser.add_argument("--output", metavar="FILE", help="write it here, mode 0600, instead of stdout")

    def run(self, arguments: argparse.Namespace) -> int:
        """Print or write the talosconfig."""
        bundle = inputs.secrets_bundle()
        if bundle is None:
            raise InputError("no secrets bundle", fix=f"give its text in ${inputs.SECRETS_VARIABLE}")
        issued = talosconfig.issue(
            bundle,
            context=arguments.context,
            endpoints=tuple(arguments.endpoint),
            nodes=tuple(arguments.node),
            role=arguments.role,
            lifetime=timedelta(seconds=seconds(arguments.lifetime)),
        )
        inputs.write_secret(arguments.output, issued.render())
        return 0
