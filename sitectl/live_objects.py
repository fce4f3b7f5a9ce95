"""Reads a site's objects: what the engine's state declares, and what the cluster has, with each field's manager."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from definitions import applying
from definitions.errors import DefinitionsError
from floor.kubectl import VARIABLE
from floor.metadata import FIELD_MANAGER
from sitectl import site_cluster
from sitectl.field_owners import ForeignField, ForeignFields, foreign_fields, label

# A patch adds to an object of others, who set its other fields.
_DEFINITIONS = "customresourcedefinitions.v1.apiextensions.k8s.io"
_DELETED = (ForeignField(path="metadata", manager="no one: it was deleted, with every object of its kind"),)
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
    foreign, unserved = [], set[str]()
    if definitions:
        there = cluster.objects("the site's definitions", [_DEFINITIONS], "--show-managed-fields")
        for command, of_file in definitions:
            line = f"{_credentials(command, site)}{command}"
            foreign += [*_gone(of_file, there, line, site), *_of_definitions(of_file, there, line, site)]
        unserved = {fields.resource.rpartition(" ")[2] for fields in foreign if fields.fields == _DELETED}
    # kubectl lists nothing at all where one of the kinds is not served.
    kinds = {
        f"{body['kind']}.{_version(body['apiVersion'])}" for body in declared if not _is_of(body, unserved, definitions)
    }
    live = cluster.objects("the site's objects", sorted(kinds), "--show-managed-fields")
    return [*foreign_fields(declared, live, stack=site), *foreign]


def _declared(state: Any) -> list[dict[str, Any]]:
    """Objects that are the site's own."""
    resources = (state.get("deployment") or {}).get("resources") or []
    inputs = (resource.get("inputs") or {} for resource in resources if _OWN.fullmatch(str(resource.get("type"))))
    return [body for body in inputs if FIELD_MANAGER in ((body.get("metadata") or {}).get("annotations") or {})]


def _definitions(state: Any, project: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Of each command of the state that brought a file of the bundle: itself, and the file's definitions.

    Not of a file that is another one since: the preview shows its change.
    """
    resources = (state.get("deployment") or {}).get("resources") or []
    commands = [str((resource.get("inputs") or {}).get("create", "")) for resource in resources]
    pairs = []
    for words in (shlex.split(command) for command in commands if applying.PROGRAM in command):
        file, sha256, manager = (words[words.index(word) + 1] for word in ("apply", "--sha256", "--manager"))
        with contextlib.suppress(DefinitionsError):
            definitions = applying.declared(project / file, sha256)
            for definition in definitions:
                definition["metadata"]["annotations"] = {FIELD_MANAGER: manager}
            pairs.append((shlex.join(words), definitions))
    return pairs


def _gone(declared: list[dict[str, Any]], there: list[dict[str, Any]], command: str, stack: str) -> list[ForeignFields]:
    names = {label(body) for body in there}
    up = shlex.join(["pulumi", "up", "--refresh", "--stack", stack])
    gone = [label(body) for body in declared if label(body) not in names]
    return [ForeignFields(resource=name, fields=_DELETED, take_back=(command, up)) for name in gone]


def _of_definitions(
    declared: list[dict[str, Any]], there: list[dict[str, Any]], command: str, stack: str
) -> list[ForeignFields]:
    """What the command takes back: no `up` runs it again while its file is the same."""
    changed = []
    for fields in foreign_fields(declared, there, stack=stack):
        by_hand = [line for line in fields.take_back if not line.startswith("pulumi up ")]
        ours = [command] if len(by_hand) < len(fields.take_back) else []
        changed.append(replace(fields, take_back=(*by_hand, *ours)))
    return changed


def _is_of(body: dict[str, Any], names: set[str], definitions: list[tuple[str, list[dict[str, Any]]]]) -> bool:
    """Whether the object is of a kind that one of these definitions has."""
    return any(
        (definition["spec"]["group"], definition["spec"]["names"]["kind"])
        == (str(body["apiVersion"]).rpartition("/")[0], body["kind"])
        for _, of_file in definitions
        for definition in of_file
        if definition["metadata"]["name"] in names
    )


def _credentials(command: str, site: str) -> str:
    """What a command of a cluster of its own needs before it; one with a file names that."""
    own = f'{VARIABLE}="$(pulumi stack output kubeconfig --show-secrets --stack {shlex.quote(site)})" '
    return "" if "--kubeconfig" in shlex.split(command) else own


def _version(api_version: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{version}.{group}"
