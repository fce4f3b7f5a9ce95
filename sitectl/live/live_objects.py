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
from definitions.command import ApplyCommand
from definitions.errors import DefinitionsError
from floor.kubectl import VARIABLE
from floor.metadata import FIELD_MANAGER
from sitectl.change.field_owners import ForeignField, ForeignFields, foreign_fields, label
from sitectl.live import site_cluster

# A patch adds to an object of others, who set its other fields.
_OWN = re.compile(r"kubernetes:.+(?<!Patch)")
_DEFINITIONS = "customresourcedefinitions.v1.apiextensions.k8s.io"
_DELETED = (ForeignField(path="metadata", manager="no one: it was deleted, with every object of its kind"),)


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
    foreign, unserved = [], set[tuple[str, str]]()
    if definitions:
        there = cluster.objects("the site's definitions", [_DEFINITIONS], "--show-managed-fields")
        for command, bodies in definitions:
            gone = _gone(bodies, there)
            unserved |= {(body["spec"]["group"], body["spec"]["names"]["kind"]) for body in gone}
            line = f"{_credentials(command, site)}{command.text}"
            up = shlex.join(["pulumi", "up", "--refresh", "--stack", site])
            foreign += [ForeignFields(resource=label(body), fields=_DELETED, take_back=(line, up)) for body in gone]
            foreign += _changed(bodies, there, line, site)
    # kubectl lists nothing at all where one of the kinds is not served.
    kinds = {
        f"{body['kind']}.{version}.{group}"
        for body in declared
        for group, _, version in [str(body["apiVersion"]).rpartition("/")]
        if (group, body["kind"]) not in unserved
    }
    live = cluster.objects("the site's objects", sorted(kinds), "--show-managed-fields")
    return [*foreign_fields(declared, live, stack=site), *foreign]


def _declared(state: Any) -> list[dict[str, Any]]:
    """Objects that are the site's own."""
    resources = (state.get("deployment") or {}).get("resources") or []
    inputs = (resource.get("inputs") or {} for resource in resources if _OWN.fullmatch(str(resource.get("type"))))
    return [body for body in inputs if FIELD_MANAGER in ((body.get("metadata") or {}).get("annotations") or {})]


def _definitions(state: Any, project: Path) -> list[tuple[ApplyCommand, list[dict[str, Any]]]]:
    """Of each command of the state that installed a file of the bundle: itself, and the file's definitions.

    Not of a file that is another one since: the preview shows its change.
    """
    resources = (state.get("deployment") or {}).get("resources") or []
    commands = (ApplyCommand.read((resource.get("inputs") or {}).get("create")) for resource in resources)
    pairs = []
    for command in filter(None, commands):
        with contextlib.suppress(DefinitionsError):
            bodies = applying.declared(project / command.file, command.sha256)
            for body in bodies:
                body["metadata"]["annotations"][FIELD_MANAGER] = command.manager
            pairs.append((command, bodies))
    return pairs


def _gone(declared: list[dict[str, Any]], there: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {label(body) for body in there}
    return [body for body in declared if label(body) not in names]


def _changed(
    declared: list[dict[str, Any]], there: list[dict[str, Any]], command: str, stack: str
) -> list[ForeignFields]:
    """What the command reverts: no `up` runs it again while its file is the same."""
    changed = []
    for fields in foreign_fields(declared, there, stack=stack):
        by_hand = [line for line in fields.take_back if not line.startswith("pulumi up ")]
        ours = [command] if len(by_hand) < len(fields.take_back) else []
        changed.append(replace(fields, take_back=(*by_hand, *ours)))
    return changed


def _credentials(command: ApplyCommand, site: str) -> str:
    """What goes before a command for a cluster of the program's own; one with a file names that."""
    own = f'{VARIABLE}="$(pulumi stack output kubeconfig --show-secrets --stack {shlex.quote(site)})" '
    return "" if command.kubeconfig else own
