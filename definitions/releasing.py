"""Takes definitions that an earlier program kept as objects out of a stack's state; the cluster keeps them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from definitions.applying import Cluster
from definitions.errors import DefinitionsError
from floor.metadata import FIELD_MANAGER

_HELD = "CrdBundle$kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition::"


def release(cluster: Cluster, stack: str, kept: Path, pulumi: Callable[..., str]) -> list[str]:
    """Names of the definitions that the state no longer has; none if it had none. May be run again.

    kept: gets the state as it was. pulumi: runs the engine with the given arguments.
    """
    state = json.loads(pulumi("stack", "export", "--stack", stack))
    names = [str(resource["id"]) for resource in _resources(state) if _HELD in resource["urn"]]
    if names:
        kept.parent.mkdir(exist_ok=True)
        kept.touch(mode=0o600)
        kept.write_text(json.dumps(state), encoding="utf-8")
        pulumi("stack", "import", "--stack", stack, given=json.dumps(without_definitions(state)))
    # After the state: a definition without the mark is taken for one that no state has.
    managers = {_manager(resource["urn"]) for resource in _resources(state)}
    if marked := [row.name for row in cluster.present() if row.holder in managers]:
        cluster.run("annotate", "customresourcedefinitions", *marked, f"{FIELD_MANAGER}-")
    return names


def without_definitions(state: Mapping[str, Any]) -> dict[str, Any]:
    """An exported state without the objects of the bundle's definitions, and without what names them."""
    resources = []
    for resource in _resources(state):
        if _HELD in resource["urn"]:
            continue
        left = dict(resource)
        if "dependencies" in left:
            left["dependencies"] = _others(left["dependencies"])
        if "propertyDependencies" in left:
            left["propertyDependencies"] = {key: _others(of) for key, of in left["propertyDependencies"].items()}
        resources.append(left)
    return {**state, "deployment": {**state["deployment"], "resources": resources}}


def engine(*words: str, given: str | None = None) -> str:
    """Run `pulumi`. Raises DefinitionsError."""
    try:
        done = subprocess.run(["pulumi", *words], input=given, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DefinitionsError("pulumi is not on PATH", fix="run this where `up` runs") from None
    if done.returncode != 0:
        raise DefinitionsError(
            f"pulumi {' '.join(words[:2])}: {done.stderr.strip()}", fix="fix that, then run it again"
        )
    return done.stdout


def exported_kubeconfig(stack: str) -> str:
    """Of the cluster that the stack made. Raises DefinitionsError."""
    try:
        return engine("stack", "output", "kubeconfig", "--show-secrets", "--stack", stack)
    except DefinitionsError as error:
        fix = "for a cluster that the program did not make, name its kubeconfig by --kubeconfig"
        raise DefinitionsError(error.problem.what, fix=fix) from None


def _resources(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (state.get("deployment") or {}).get("resources") or []


def _manager(urn: str) -> str:
    """The field manager of a stack's objects: project and stack, of `urn:pulumi:STACK::PROJECT::...`."""
    stack, project = urn.removeprefix("urn:pulumi:").split("::")[:2]
    return f"{project}-{stack}"


def _others(urns: list[str] | None) -> list[str]:
    return [urn for urn in urns or () if _HELD not in urn]
