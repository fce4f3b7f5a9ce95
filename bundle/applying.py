"""Brings a file of custom resource definitions into a cluster, and out of it, so that a state holds its digest alone.

As objects of the engine, 47 definitions were 4.9 of the 8.0 MB that it writes before and after each step.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bundle.errors import BundleError
from floor.kubectl import is_away, kubectl, last_lines
from floor.metadata import DEFINITIONS, FIELD_MANAGER

PROGRAM = " -m bundle apply "
"""In the text of each command that brings a file."""
_FETCH = "python -m sitectl bundle"
_CALL_S, _ESTABLISHED_S, _GONE_S = 60, 60, 300
# An API server that restarts, as each does while Kubernetes is upgraded.
_AWAY_S, _PAUSE_S = 180, 2
# Not JSONPath, which fails on a definition whose conditions are still null.
_NOTE = '{{with .metadata.%s}}{{with index . "%s"}}{{.}}{{end}}{{end}}'
_ESTABLISHED = '{{with .status}}{{range .conditions}}{{if eq .type "Established"}}{{.status}}{{end}}{{end}}{{end}}'
_COLUMNS = ("{{.metadata.name}}", _NOTE % ("annotations", FIELD_MANAGER), _NOTE % ("labels", DEFINITIONS), _ESTABLISHED)
_LISTED = "go-template={{range .items}}" + r'{{"\t"}}'.join(_COLUMNS) + r'{{"\n"}}{{end}}'


class Present(NamedTuple):
    """A definition that is in the cluster."""

    name: str
    holder: str
    """Manager by a state of the engine that has it as an object; empty for none."""
    source: str
    """The file of a bundle that it came with; empty for another origin."""
    established: str
    """`True` once its kind is served."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster that gets definitions."""

    kubeconfig: str = field(repr=False)
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
    patience_s: float = _AWAY_S

    def run(self, *arguments: str, given: str | None = None, timeout_s: int = _CALL_S) -> str:
        """What kubectl prints; asked again while no API server answers. Raises BundleError."""
        until = time.monotonic() + self.patience_s
        while True:
            try:
                done = kubectl(self.kubeconfig, *arguments, given=given, timeout_s=timeout_s)
                stderr, away = done.stderr, done.returncode != 0 and is_away(done.stderr)
            except FileNotFoundError:
                raise BundleError("kubectl is not on PATH", fix="install kubectl where pulumi runs") from None
            except subprocess.TimeoutExpired:
                stderr, away = f"no answer within {timeout_s} s", True
            if not away and done.returncode == 0:
                return done.stdout
            if not away:
                raise BundleError(f"kubectl {arguments[0]}: {last_lines(stderr)}", fix="fix that, then run `up` again")
            if time.monotonic() > until:
                raise BundleError(
                    f"the cluster does not answer: {last_lines(stderr)}",
                    fix="bring its API server back; the next `up` goes on from here",
                )
            self.say(f"waiting for the cluster: {last_lines(stderr)}")
            time.sleep(_PAUSE_S)

    def present(self) -> list[Present]:
        """Every definition there is."""
        rows = self.run("get", "customresourcedefinitions", "-o", _LISTED).splitlines()
        return [Present(*row.split("\t")) for row in rows]

    def until_served(self, names: Collection[str]) -> None:
        """Wait for the kinds. Not by `kubectl wait`, which fails on a definition that has no condition yet."""
        until = time.monotonic() + _ESTABLISHED_S
        while missing := sorted(set(names) - {row.name for row in self.present() if row.established == "True"}):
            if time.monotonic() > until:
                raise BundleError(
                    f"no {missing[0]} is served after {_ESTABLISHED_S} s, of {len(missing)} such kinds",
                    fix=f"read its conditions: kubectl describe customresourcedefinition {missing[0]}",
                )
            self.say(f"waiting for the kinds of {missing[0]}")
            time.sleep(1)


def read(file: Path, sha256: str) -> list[dict[str, Any]]:
    """The definitions of a file of the bundle. Raises BundleError where it is not the pinned one."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}", fix=_FETCH) from None
    got = hashlib.sha256(content).hexdigest()
    if got != sha256:
        raise BundleError(f"{file} changed since it was checked", got=got, allowed=sha256, fix=_FETCH)
    items: list[dict[str, Any]] = json.loads(content)["items"]
    return items


def declared(file: Path, sha256: str) -> list[dict[str, Any]]:
    """The definitions of a file as they are applied. Raises BundleError where it is not the pinned one."""
    definitions = read(file, sha256)
    for definition in definitions:
        definition["metadata"].setdefault("labels", {})[DEFINITIONS] = file.stem
    return definitions


def apply(cluster: Cluster, file: Path, sha256: str, manager: str) -> int:
    """Apply every definition of the file and wait until its kinds are served; their number. May be run again.

    manager: of the fields, by server-side apply; it takes over what others set. Raises BundleError where an earlier
    program's state holds a definition as an object: at its end that `up` would delete it, with all objects of its kind.
    """
    source, definitions = file.stem, declared(file, sha256)
    names = {definition["metadata"]["name"] for definition in definitions}
    there = cluster.present()
    if held := sorted(row.name for row in there if row.name in names and row.holder == manager):
        raise BundleError(
            f"the stack's state has {len(held)} of these definitions as objects, {held[0]} first: an earlier program "
            "made them, and this `up` would end by deleting them with everything of their kinds",
            fix="take them out of the state by `python -m bundle release` (docs/runbooks/crd-bundle.md)",
        )
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions})
    options = ("--server-side", "--force-conflicts", f"--field-manager={manager}", "--filename=-")
    cluster.run("apply", *options, given=given)
    cluster.until_served(names)
    for name in sorted(row.name for row in there if row.source == source and row.name not in names):
        cluster.say(
            f"{name} is no longer a definition of {source}: it stays, with every object of its kind\n"
            f"  once none is needed: kubectl delete customresourcedefinition {name}"
        )
    return len(definitions)


def remove(cluster: Cluster, source: str) -> None:
    """Delete the definitions of a source, and with them every object of their kinds. May be run again."""
    chosen = (f"--selector={DEFINITIONS}={source}", "--ignore-not-found", f"--timeout={_GONE_S}s")
    cluster.run("delete", "customresourcedefinitions", *chosen, timeout_s=2 * _GONE_S)
