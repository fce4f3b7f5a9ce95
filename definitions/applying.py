"""Installs a file of custom resource definitions in a cluster, so that a state holds only its digest.

As objects of the engine, 47 definitions were 4.9 of the 8.0 MB that it writes before and after each step.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from definitions.errors import DefinitionsError
from floor.kubectl import is_away, kubectl, last_lines
from floor.metadata import DEFINITIONS, FIELD_MANAGER

# Annotation of a definition: the digest of the file that it was applied from.
_DIGEST = "inference-platform/definitions-sha256"
_TOUCHED = "inference-platform/touched"
_FETCH = "python -m sitectl bundle"
_CALL_S, _ESTABLISHED_S, _LOOK_S = 60, 60, 10
# An API server that restarts, as each does while Kubernetes is upgraded.
_AWAY_S = 180
# Between two looks at what takes seconds: an API server that comes back, and one that begins to serve a kind.
_PAUSE_S = 1
# Of the looks at kinds that are not served yet; each of several API servers takes 5 s.
_TOUCH_EVERY = 8
# Not JSONPath, which fails on a definition whose conditions are still null.
_NOTE = '{{with .metadata.%s}}{{with index . "%s"}}{{.}}{{end}}{{end}}'
_ESTABLISHED = '{{with .status}}{{range .conditions}}{{if eq .type "Established"}}{{.status}}{{end}}{{end}}{{end}}'
_MANAGERS = "{{range .metadata.managedFields}}{{.manager}} {{end}}"
_NOTES = (_NOTE % ("annotations", FIELD_MANAGER), _NOTE % ("labels", DEFINITIONS))


def _template(*columns: str) -> str:
    return "go-template={{range .items}}" + r'{{"\t"}}'.join(columns) + r'{{"\n"}}{{end}}'


_PRESENT = _template("{{.metadata.name}}", *_NOTES, _MANAGERS, _ESTABLISHED)


class Present(NamedTuple):
    """A definition that is in the cluster."""

    name: str
    holder: str
    """Manager by a state of the engine that has it as an object; empty for none."""
    source: str
    """The file of a bundle that it came with; empty for another origin."""
    managers: str
    """Of its fields, separated by spaces."""
    established: str
    """`True` once its kind is served."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster that gets definitions."""

    kubeconfig: str = field(repr=False)
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
    patience_s: float = _AWAY_S

    def run(self, *arguments: str, given: str | None = None, timeout_s: int = _CALL_S) -> str:
        """What kubectl prints; asked again while no API server answers. Raises DefinitionsError."""
        until = time.monotonic() + self.patience_s
        while True:
            try:
                done = kubectl(self.kubeconfig, *arguments, given=given, timeout_s=timeout_s)
                stderr, away = done.stderr, done.returncode != 0 and is_away(done.stderr)
            except FileNotFoundError:
                raise DefinitionsError("kubectl is not on PATH", fix="install kubectl where pulumi runs") from None
            except subprocess.TimeoutExpired:
                stderr, away = f"no answer within {timeout_s} s", True
            if not away and done.returncode == 0:
                return done.stdout
            if not away:
                raise DefinitionsError(
                    f"kubectl {arguments[0]}: {last_lines(stderr)}", fix="fix that, then run `up` again"
                )
            if time.monotonic() > until:
                raise DefinitionsError(
                    f"the cluster does not answer: {last_lines(stderr)}",
                    fix="bring its API server back; the next `up` goes on from here",
                )
            self.say(f"waiting for the cluster: {last_lines(stderr)}")
            time.sleep(_PAUSE_S)

    def present(self) -> list[Present]:
        """Every definition there is."""
        # Without the option, kubectl hides the managers.
        rows = self.run("get", "customresourcedefinitions", "--show-managed-fields", "-o", _PRESENT).splitlines()
        return [Present(*row.split("\t")) for row in rows]

    def until_served(self, names: Collection[str]) -> None:
        """Wait for the kinds. Not by `kubectl wait`, which fails on a definition that has no condition yet."""
        for look in range(_ESTABLISHED_S // _PAUSE_S):
            missing = sorted(set(names) - {row.name for row in self.present() if row.established == "True"})
            if not missing:
                return
            self.say(f"waiting for the kinds of {missing[0]}")
            if look and look % _TOUCH_EVERY == 0:
                self._touch(missing)
            time.sleep(_PAUSE_S)
        raise DefinitionsError(
            f"no {missing[0]} is served after {_ESTABLISHED_S} s, of {len(missing)} such kinds",
            fix=f"read its conditions: kubectl describe customresourcedefinition {missing[0]}",
        )

    def _touch(self, names: Sequence[str]) -> None:
        """Change them for a moment. An API server serves a new kind after it has seen its definition change, not at its
        own start: one that dies in between leaves it for 5 minutes (apiextensions-apiserver, pkg/apiserver/
        customresource_handler.go: only updates reach the establishing controller; apiserver.go: the informer's period).
        """
        for note in (f"{_TOUCHED}=", f"{_TOUCHED}-"):
            self.run("annotate", "--overwrite", "customresourcedefinitions", *names, note)


def read(file: Path, sha256: str) -> list[dict[str, Any]]:
    """The definitions of a file of the bundle. Raises DefinitionsError where it is not the pinned one."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DefinitionsError(f"{file}: {error.strerror}", fix=_FETCH) from None
    got = hashlib.sha256(content).hexdigest()
    if got != sha256:
        raise DefinitionsError(f"{file} changed since it was checked", got=got, allowed=sha256, fix=_FETCH)
    items: list[dict[str, Any]] = json.loads(content)["items"]
    return items


def declared(file: Path, sha256: str) -> list[dict[str, Any]]:
    """The definitions of a file as they are applied. Raises DefinitionsError where it is not the pinned one."""
    definitions = read(file, sha256)
    for definition in definitions:
        definition["metadata"].setdefault("labels", {})[DEFINITIONS] = file.stem
        definition["metadata"].setdefault("annotations", {})[_DIGEST] = sha256
    return definitions


def apply(cluster: Cluster, file: Path, sha256: str, manager: str) -> int:
    """Apply every definition of the file and wait until its kinds are served; their number. May be run again.

    manager: of the fields, by server-side apply; it reverts what others set in definitions of ours.
    Raises DefinitionsError for a definition of others, and for one that a state has as an object: at its end
    the `up` of a program that no longer declares it would delete it, with all objects of its kind.
    """
    source, definitions = file.stem, declared(file, sha256)
    names = {definition["metadata"]["name"] for definition in definitions}
    there = cluster.present()
    _require_ours([row for row in there if row.name in names], source, manager)
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions})
    # The file is the pinned one. To check it, kubectl would ask for the schema of all kinds, which an API server puts
    # together again after each new kind: under load that takes longer than kubectl waits.
    options = ("--server-side", "--force-conflicts", "--validate=ignore", f"--field-manager={manager}", "--filename=-")
    cluster.run("apply", *options, given=given)
    cluster.until_served(names)
    for name in sorted(row.name for row in there if row.source == source and row.name not in names):
        cluster.say(
            f"{name} is no longer a definition of {source}: it stays, with every object of its kind\n"
            f"  once none is needed: kubectl delete customresourcedefinition {name}"
        )
    return len(definitions)


def _require_ours(there: Sequence[Present], source: str, manager: str) -> None:
    if held := sorted(row.name for row in there if row.holder):
        holder = next(row.holder for row in there if row.name == held[0])
        raise DefinitionsError(
            f"a stack's state has {len(held)} of these definitions as objects, {held[0]} first, as {holder}: this `up` "
            "might end by deleting them with everything of their kinds",
            fix="if that is this stack, take them out of its state by `python -m definitions release` "
            "(docs/runbooks/crd-bundle.md); else set crds.owner: external",
        )
    of_others = sorted(row.name for row in there if not row.source and manager not in row.managers.split())
    if of_others:
        raise DefinitionsError(
            f"{len(of_others)} of the definitions of {source} were installed by others, {of_others[0]} first",
            fix="set crds.owner: external, or hand them over: kubectl label customresourcedefinitions "
            f"{' '.join(of_others)} {DEFINITIONS}={source}",
        )


def lacking(kubeconfig: str, files: Mapping[str, Collection[str]]) -> set[str]:
    """Names that the cluster lacks of the files that were applied to it; none where it cannot be asked at once.

    files: names of a file's definitions by its digest. One that was never applied, or in another release, lacks none.
    """
    if "server:" not in kubeconfig:
        return set()
    columns = _template("{{.metadata.name}}", _NOTE % ("annotations", _DIGEST))
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        words = ("get", "customresourcedefinitions", "-o", columns, f"--request-timeout={_LOOK_S}s")
        done = kubectl(kubeconfig, *words, timeout_s=2 * _LOOK_S)
        if done.returncode == 0:
            there = dict(line.split("\t") for line in done.stdout.splitlines())
            applied = [names for digest, names in files.items() if digest in there.values()]
            return {name for names in applied for name in names} - there.keys()
    return set()
