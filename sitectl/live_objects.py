"""Reads a site's objects: what the engine's state declares, and what the cluster has, with each field's manager."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from floor.metadata import FIELD_MANAGER
from sitectl import programs
from sitectl.errors import SitectlError, unusable_file
from sitectl.field_owners import ForeignFields, foreign_fields
from stacks.plan.site_plan import plan_file

_KUBECTL = "install kubectl where pulumi runs, in the version of the cluster"
_LIMIT = "--request-timeout=60s"


def records(project: Path, site: str, file: Path, preview: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `look` finds, for a saved preview; nothing after a preview that failed, whose error is enough."""
    if any(diagnostic.get("severity") == "error" for diagnostic in preview.get("diagnostics") or ()):
        return []
    return [fields.record() for fields in look(project, site, file)]


def look(project: Path, site: str, file: Path) -> list[ForeignFields]:
    """Fields of the site's objects that others have set. Raises SitectlError where state or cluster cannot be read."""
    declared = _declared(_pulumi(project, site, "stack", "export"))
    if not declared:
        return []
    named = plan_file(file).site.cluster.kubeconfig
    if named is None:
        kubeconfig = str(_pulumi(project, site, "stack", "output", "kubeconfig", "--show-secrets", "--json"))
    else:
        kubeconfig = _text(project / named)
    return foreign_fields(declared, _live(project, kubeconfig, declared), stack=site)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise unusable_file(error) from None


def _declared(state: Any) -> list[dict[str, Any]]:
    resources = (state.get("deployment") or {}).get("resources") or []
    inputs = (
        resource.get("inputs") or {} for resource in resources if str(resource.get("type")).startswith("kubernetes:")
    )
    return [body for body in inputs if FIELD_MANAGER in ((body.get("metadata") or {}).get("annotations") or {})]


def _live(project: Path, kubeconfig: str, declared: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    kinds = sorted({f"{body['kind']}.{_version(body['apiVersion'])}" for body in declared})
    file = os.memfd_create("kubeconfig")
    try:
        os.write(file, kubeconfig.encode())
        command = ["kubectl", f"--kubeconfig=/proc/self/fd/{file}", "get", ",".join(kinds), _LIMIT]
        command += ["--all-namespaces", "--show-managed-fields", "--output=json"]
        done = programs.run(command, cwd=project, fix=_KUBECTL, pass_fds=(file,))
    finally:
        os.close(file)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise SitectlError("kubectl could not list the site's objects: " + " ".join(words), fix=_KUBECTL)
    items: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return items


def _version(api_version: str) -> str:
    group, _, version = api_version.rpartition("/")
    return f"{version}.{group}"


def _pulumi(project: Path, site: str, *words: str) -> Any:
    command = ["pulumi", *words, "--stack", site]
    done = programs.run(command, cwd=project, fix="https://www.pulumi.com/docs/install/")
    try:
        return json.loads(done.stdout)
    except ValueError:
        words_ = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise SitectlError(
            f"`{' '.join(command)}` ended with {done.returncode}: " + " ".join(words_),
            fix=f"pulumi login, pulumi stack select {site}, and a passphrase or key for its secrets",
        ) from None
