"""`leftovers`: delete objects that an earlier manifest had and the present one lacks."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import click

from talos.cli import inputs
from talos.cli.failures import InputError
from talos.cli.kubernetes import Kubernetes
from talos.cli.options import Command
from talos.cli.waiting import Watch, seconds
from talos.secrets import variables

# Where the engine gives a command what its last run printed.
_EARLIER = "PULUMI_COMMAND_STDOUT"
DESCRIPTION = f"""\
Delete objects of Kubernetes that were listed when the command last ran, and are not now. The present list comes from
stdin and is printed; the earlier one is in ${_EARLIER}, where the engine puts what a command printed before.
Without it nothing is deleted. Namespaces stay, with everything that others put there: they are named on stderr.

  echo 'v1 ConfigMap kube-system/cilium-config' | python -m talos leftovers"""


@dataclass(frozen=True, order=True)
class ObjectPlace:
    """Where an object is."""

    group: str
    kind: str
    name: str
    """With its namespace before it, where it has one."""
    version: str

    @classmethod
    def read(cls, line: str) -> ObjectPlace:
        """Of `apps/v1 DaemonSet kube-system/cilium`; InputError for anything else."""
        words = line.split()
        if len(words) != 3:
            raise InputError(f"object: got {line!r}, allowed API-VERSION KIND [NAMESPACE/]NAME", fix="write it so")
        group, _, version = words[0].rpartition("/")
        return cls(group, words[1], words[2], version)

    @property
    def identity(self) -> tuple[str, str, str]:
        """The same under each version of its kind."""
        return self.group, self.kind, self.name

    def body(self) -> dict[str, object]:
        """What kubectl needs to delete it."""
        namespace, _, name = self.name.rpartition("/")
        meta = {"name": name} | ({"namespace": namespace} if namespace else {})
        return {"apiVersion": "/".join(filter(None, (self.group, self.version))), "kind": self.kind, "metadata": meta}


@click.command(cls=Command, help=DESCRIPTION)
@click.option("--timeout", default="5m", metavar="DURATION", help="give up after this long (5m)")
def command(*, timeout: str) -> int:
    """Delete what is left over; prints the list that it was given."""
    cluster = Kubernetes.from_environment()
    if cluster is None:
        raise InputError("no kubeconfig", fix=f"put the text of the cluster's kubeconfig into ${variables.KUBECONFIG}")
    text = inputs.text_of("-", "objects")
    now = {place.identity for place in _places(text)}
    if not now:
        raise InputError("objects: none is listed, so all would be left over", fix="list the manifest's objects")
    gone = sorted(place for place in _places(os.environ.get(_EARLIER, "")) if place.identity not in now)
    watch = Watch("leftovers", timeout_s=seconds(timeout))
    for place in gone:
        if place.kind == "Namespace":
            watch.say(f"Namespace {place.name} is in the manifest no longer, and stays with what is in it")
    going = [place for place in gone if place.kind != "Namespace"]
    if going:
        bodies = [place.body() for place in going]
        watch.until("to delete what is left over", lambda: cluster.delete_objects(bodies))
        watch.say(f"deleted {', '.join(f'{place.kind} {place.name}' for place in going)}")
    sys.stdout.write(text)
    return 0


def _places(text: str) -> list[ObjectPlace]:
    return [ObjectPlace.read(line) for line in text.splitlines() if line.strip()]
