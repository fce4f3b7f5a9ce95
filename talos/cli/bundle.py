"""`secrets` and `talosconfig`: a cluster's identity, made or taken over, and credentials issued from it offline."""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from pathlib import Path
from typing import get_args

from talos import secrets, talosconfig
from talos.cli import inputs
from talos.cli.failures import InputError, NotAllowedError
from talos.cli.waiting import seconds


class Secrets:
    """`secrets`: a secrets bundle."""

    HELP = "make a new cluster's secrets, or check and print those of one that exists"
    DESCRIPTION = """\
Print a secrets bundle in the format of `talosctl gen secrets`: a new one, or, with --import, the one in a file after
checking it. It gives full control of the cluster. --output overwrites no other bundle.

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
        text = bundle.export()
        _refuse_another(arguments.output, text)
        inputs.write_secret(arguments.output, text)
        if arguments.output:
            print(f"wrote {arguments.output}, mode 0600", file=sys.stderr)
        return 0


def _refuse_another(path: str | None, text: str) -> None:
    """NotAllowedError where the file holds anything else: a bundle may exist nowhere else."""
    if path and Path(path).exists() and inputs.text_of(path, "secrets bundle") != text:
        raise NotAllowedError(
            f"{path} holds another secrets bundle, or something else, and stays as it is",
            fix="name another file with --output; delete this one only if no cluster was made with it",
        )


class IssuedTalosconfig:
    """`talosconfig`: credentials for people."""

    HELP = "issue a talosconfig from the secrets bundle, without asking any machine"
    DESCRIPTION = f"""\
Print a talosconfig signed by the Talos CA of the bundle in ${inputs.SECRETS_VARIABLE}. It is a secret, and cannot be
revoked: give it the least role and the shortest lifetime that work.

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
