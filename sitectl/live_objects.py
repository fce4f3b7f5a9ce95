"""Reads a site's objects: what the engine's state declares, and what the cluster has, with each field's manager."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bundle import applying
from bundle.errors import BundleError
from floor.kubectl import VARIABLE
from floor.metadata import FIELD_MANAGER
from sitectl import site_cluster
from sitectl.errors import SitectlError
from sitectl.field_owners import ForeignField, ForeignFields, foreign_fields, label

# A patch adds to an object of others, who set its other fields.
_OWN = re.compile(r"kubernetes:.+(?<!Patch)")


def records(project: Path, site: str, file: Path, preview: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `look` finds, for a saved preview; nothing after a preview that failed, whose error is enough."""
    if any(diagnostic.get("severity") == "error" for diagnostic in preview.get("diagnostics") or ()):
        return []
    return [fields.record() for fields in look(project, site, file)]


def look(project: Path, site: str, file: Path) -> list[ForeignFields]:
    """Fields of the site's objects that others have set. Raises SitectlError where state or cluster cannot be read."""
    state = site_cluster.pulumi(project, site, "stack", "export")
    declared, definitions = _declared(state), _definitions(state, project)
    if not declared:
        return []
    cluster = site_cluster.of_site(project, site, file)
    bodies = [*declared, *(body for _, of_file in definitions for body in of_file)]
    kinds = sorted({f"{body['kind']}.{_version(body['apiVersion'])}" for body in bodies})
    live = cluster.objects("the site's objects", kinds, "--show-managed-fields")
    found = foreign_fields(declared, live, stack=site)
    for command, of_file in definitions:
        found += _of_definitions(of_file, live, f"{_credentials(command, site)}{command}", site)
    return found


def _declared(state: Any) -> list[dict[str, Any]]:
    """Objects that are the site's own."""
    resources = (state.get("deployment") or {}).get("resources") or []
    inputs = (resource.get("inputs") or {} for resource in resources if _OWN.fullmatch(str(resource.get("type"))))
    return [body for body in inputs if FIELD_MANAGER in ((body.get("metadata") or {}).get("annotations") or {})]


def _definitions(state: Any, project: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Of each command of the state that brought a file of the bundle: itself, and the file's definitions."""
    resources = (state.get("deployment") or {}).get("resources") or []
    commands = [str((resource.get("inputs") or {}).get("create", "")) for resource in resources]
    found = []
    for words in (shlex.split(command) for command in commands if applying.PROGRAM in command):
        file, sha256, manager = (words[words.index(word) + 1] for word in ("apply", "--sha256", "--manager"))
        try:
            definitions = applying.declared(project / file, sha256)
        except BundleError as error:
            raise SitectlError(error.problem.sentence, fix=error.problem.fix) from None
        for definition in definitions:
            definition["metadata"]["annotations"] = {FIELD_MANAGER: manager}
        found.append((shlex.join(words), definitions))
    return found


def _of_definitions(
    declared: list[dict[str, Any]], live: list[dict[str, Any]], command: str, stack: str
) -> list[ForeignFields]:
    """What the command brings back: no `up` runs it again while its file is the same."""
    there = {label(body) for body in live}
    gone = [ForeignField(path="metadata", manager="no one: it was deleted, with every object of its kind")]
    found = [
        ForeignFields(resource=label(body), fields=tuple(gone), take_back=(command,))
        for body in declared
        if label(body) not in there
    ]
    for fields in foreign_fields(declared, live, stack=stack):
        by_hand = [line for line in fields.take_back if not line.startswith("pulumi up ")]
        ours = [command] if len(by_hand) < len(fields.take_back) else []
        found.append(replace(fields, take_back=(*by_hand, *ours)))
    return found


def _credentials(command: str, site: str) -> str:
    """What a command of a cluster of its own needs before it; one with a file names that."""
    own = f'{VARIABLE}="$(pulumi stack output kubeconfig --show-secrets --stack {shlex.quote(site)})" '
    return "" if "--kubeconfig" in shlex.split(command) else own


def _version(api_version: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{version}.{group}"
