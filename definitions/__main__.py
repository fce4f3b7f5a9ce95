"""`python -m definitions`: installs files of definitions in a cluster; `pulumi up` runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from definitions import releasing
from definitions.applying import Cluster, apply
from definitions.errors import DefinitionsError
from floor import command_line
from floor.kubectl import VARIABLE


@click.group(cls=command_line.Group, help=__doc__)
def definitions() -> None:
    pass


@definitions.command(
    "apply", help="Install a file's definitions in the cluster, and wait until their kinds are served."
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--sha256", required=True, help="of the file, in hex")
@click.option("--release", required=True, help="that they are of, for the report")
@click.option("--manager", required=True, help="of the definitions' fields, by server-side apply")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help=f"default: the text in ${VARIABLE}")
def _apply(file: Path, sha256: str, release: str, manager: str, kubeconfig: Path | None) -> None:
    count = apply(_cluster(kubeconfig), file, sha256, manager)
    print(f"{file.stem} {release}: {count} definitions")


@definitions.command("release", help=releasing.__doc__)
@click.option("--stack", required=True, help="whose state has the definitions")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="default: the one that the stack exports")
def _release(stack: str, kubeconfig: Path | None) -> None:
    kept = Path(f".bundle/state-before-{stack.rpartition('/')[2]}.json")
    cluster = _cluster(kubeconfig) if kubeconfig else Cluster(kubeconfig=releasing.exported_kubeconfig(stack))
    names = releasing.release(cluster, stack, kept, releasing.engine)
    print(f"{len(names)} definitions left to the cluster; the state before is in {kept}" if names else "it has none")


def main(words: list[str] | None = None) -> int:
    """Exit status 1 with what to do, where the cluster is not as asked."""
    try:
        return command_line.run(definitions, words, name="python -m definitions")
    except DefinitionsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _cluster(path: Path | None) -> Cluster:
    try:
        return Cluster(kubeconfig=path.expanduser().read_text(encoding="utf-8") if path else os.environ[VARIABLE])
    except OSError as error:
        fix = "name the cluster's kubeconfig in cluster.kubeconfig"
        raise DefinitionsError(f"{path}: {error.strerror}", fix=fix) from None
    except KeyError:
        raise DefinitionsError(f"no kubeconfig: neither --kubeconfig nor ${VARIABLE}", fix="set one") from None


if __name__ == "__main__":
    sys.exit(main())
