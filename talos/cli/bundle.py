"""`secrets` and `talosconfig`: a cluster's identity, made or taken over, and credentials issued from it offline."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import get_args

import click

from talos.cli import inputs
from talos.cli.failures import InputError, NotAllowedError
from talos.cli.options import Command
from talos.cli.waiting import seconds
from talos.secrets import bundle as secrets
from talos.secrets import talosconfig, variables
from talos.secrets.from_config import bundle_of


@click.command(
    cls=Command,
    help="""\
Print a secrets bundle in the format of `talosctl gen secrets`: a new one; with --import, the one in a file after
checking it; or, with --from-config, the one that a control plane's machine config was made of. It gives full control of
the cluster. --output overwrites no other bundle.

  python -m talos secrets --output secrets.yaml
  python -m talos machine-config --address 10.0.0.2 | python -m talos secrets --from-config - --output secrets.yaml""",
)
@click.option("--import", "imported", metavar="FILE", help="take this bundle instead of a new one")
@click.option("--from-config", metavar="FILE", help="take the bundle of this control plane's config; `-` for stdin")
@click.option("--output", metavar="FILE", help="write it here, mode 0600, instead of stdout")
def make_secrets(*, imported: str | None, from_config: str | None, output: str | None) -> int:
    """Print or write the bundle."""
    if imported is not None and from_config is not None:
        raise InputError("--import: not allowed with --from-config", fix="leave one of them out")
    if from_config is not None:
        bundle = bundle_of(inputs.text_of(from_config, "machine config"))
    else:
        bundle = (
            secrets.load(inputs.text_of(imported, "secrets bundle")) if imported is not None else secrets.generate()
        )
    text = bundle.export()
    _refuse_another(output, text)
    inputs.write_secret(output, text)
    if output:
        print(f"wrote {output}, mode 0600", file=sys.stderr)
    return 0


def _refuse_another(path: str | None, text: str) -> None:
    """NotAllowedError where the file holds anything else: a bundle may exist nowhere else."""
    if path and Path(path).exists() and inputs.text_of(path, "secrets bundle") != text:
        raise NotAllowedError(
            f"{path} holds another secrets bundle, or something else, and stays as it is",
            fix="name another file with --output; delete this one only if no cluster was made with it",
        )


@click.command(
    cls=Command,
    help=f"""\
Print a talosconfig signed by the Talos CA of the bundle in ${variables.SECRETS}. It is a secret, and cannot be
revoked: give it the least role and the shortest lifetime that work.

  python -m talos talosconfig --context prod --endpoint 10.0.0.2 --role os:reader --lifetime 8h""",
)
@click.option("--context", required=True, metavar="NAME", help="the cluster's name")
@click.option("--endpoint", multiple=True, required=True, metavar="HOST", help="control plane")
@click.option("--node", multiple=True, metavar="HOST", help="whom calls are for")
@click.option("--role", type=click.Choice(get_args(talosconfig.Role)), default="os:reader", help="os:reader")
@click.option("--lifetime", default="24h", metavar="DURATION", help="24h")
@click.option("--output", metavar="FILE", help="write it here, mode 0600, instead of stdout")
def issue_talosconfig(
    *,
    context: str,
    endpoint: tuple[str, ...],
    node: tuple[str, ...],
    role: talosconfig.Role,
    lifetime: str,
    output: str | None,
) -> int:
    """Print or write the talosconfig."""
    bundle = inputs.secrets_bundle()
    if bundle is None:
        raise InputError("no secrets bundle", fix=f"give its text in ${variables.SECRETS}")
    issued = talosconfig.issue(
        bundle,
        context=context,
        endpoints=endpoint,
        nodes=node,
        role=role,
        lifetime=timedelta(seconds=seconds(lifetime)),
    )
    inputs.write_secret(output, issued.render())
    return 0
