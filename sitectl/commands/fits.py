"""`fits`: will the vLLM of anyone's manifests start, and what does it hold."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import yaml

from floor.counts import counted
from sitectl.shell.command import Command, CommandContext, pass_context
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts.catalogue import names
from stacks.facts.hardware import GPUS
from stacks.importing.engine_fits import engine_fit
from stacks.importing.manifests import engine_containers
from stacks.proof.order import TYPICAL_REQUEST_TOKENS

MORE = """\
For manifests that this platform did not write: Deployments, StatefulSets, pods, LeaderWorkerSets, and what charts
render, in files or from stdin (-). It needs no site and no cluster. Each container whose command is
vLLM's server is judged by the proof's arithmetic: memory, context, requests at once, GPUs, probes. Figures are
estimates; models are those of the catalogue.

\b
  python -m sitectl fits deployment.yaml --gpu h200-sxm
  helm template my-release my-chart | python -m sitectl fits - --gpu h100-sxm
  kubectl get deployments -A -o yaml | python -m sitectl fits - --json

exit status 1: a container does not start by these figures, or cannot be judged; each line shows why, with a fix. One
that is uncertain is no failure
"""
_LARGEST_BYTES = 64 * 1024**2


@click.command(cls=Command, epilog=MORE)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", help="manifests; - for stdin")
@click.option("--gpu", type=click.Choice(sorted(GPUS)), help="kind of GPU (default: what the nodeSelector names)")
@click.option(
    "--request-tokens",
    type=click.IntRange(1, 10_000_000),
    default=TYPICAL_REQUEST_TOKENS,
    show_default=True,
    help="prompt plus answer of a usual request",
)
@click.option(
    "--model", type=click.Choice(names()), metavar="NAME", help="the catalogue's entry for manifests that have a path"
)
@pass_context
def command(
    context: CommandContext, /, *, files: tuple[str, ...], gpu: str | None, request_tokens: int, model: str | None
) -> int:
    """Judge containers that run vLLM, of manifests that this platform did not write."""
    documents = [document for file in files for document in _documents(file)]
    fits = [engine_fit(container, gpu, request_tokens, model) for container in engine_containers(documents)]
    if not fits:
        raise SitectlError(
            f"no container runs vLLM's server, in {len(documents)} documents",
            allowed="a command with `vllm serve` or vllm.entrypoints.openai.api_server, or an image of vLLM",
            fix="name the manifests as a cluster has them: helm template, kustomize build, kubectl get -o yaml",
            status=Exit.REFUSED,
        )
    counts = Counter(fit.verdict for fit in fits)
    end = f"{counted(len(fits), 'container')}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}"
    context.say("\n\n".join([*(fit.text() for fit in fits), end]), {"containers": [asdict(fit) for fit in fits]})
    good = all(fit.verdict in ("starts", "uncertain") for fit in fits)
    return int(Exit.OK if good else Exit.REFUSED)


class _AnyTag(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads what it does not know, such as the tags of CloudFormation, as plain values."""


def _plain(loader: Any, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return node.value
    build = loader.construct_sequence if isinstance(node, yaml.SequenceNode) else loader.construct_mapping
    return build(node, deep=True)


_AnyTag.add_multi_constructor("", _plain)


def _documents(file: str) -> list[Any]:
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as stream:
            content = stream.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise SitectlError(
                f"{file} is larger than {_LARGEST_BYTES:,} bytes", fix="name fewer manifests at once", status=Exit.USAGE
            )
        return list(yaml.load_all(content, _AnyTag))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SitectlError(
            f"{file} is no YAML: {str(error)[:300] or type(error).__name__}", fix="name manifests", status=Exit.USAGE
        ) from None
