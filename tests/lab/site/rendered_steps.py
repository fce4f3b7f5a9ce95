"""Steps of a site as the program renders them, applied by hand: what `up` takes minutes for in a walk of many steps.

A step's objects are those that `up` would apply, under its field manager and in its order: first what decides about
callers, last what is deleted, each once those before it are in force.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from lab import session
from lab.paths import CHECKOUT, Lab
from sitectl.offline.checkout import declare
from tests.lab.site.stack_changes import KEY, Document

_MANAGER = f"inference-platform-{session.STACK}"
# Envoy knows how to ask a picker before there is a route that needs it, and until none does; a picker starts once its
# pool is there, and a route comes once there are servers.
_ORDER = (
    "ValidatingAdmissionPolicy",
    "EnvoyPatchPolicy",
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "NetworkPolicy",
    "ConfigMap",
    "PersistentVolumeClaim",
    "Service",
    "InferencePool",
    "InferenceObjective",
    "Job",
    "Deployment",
    "PodDisruptionBudget",
    "AIGatewayRoute",
    "BackendTrafficPolicy",
)
_PATIENCE = "--timeout=300s"
_Object = dict[str, Any]
_Objects = dict[tuple[str, str, str], _Object]


class RenderedSteps:
    """A running site that becomes what an edit makes of its file."""

    def __init__(self, lab: Lab, folder: Path, edit: Callable[[Document], None]) -> None:
        """`edit` gives the site that is there."""
        self._lab, self._file = lab, folder / f"Pulumi.{session.STACK}.yaml"
        self._now = self._rendered(edit)

    def become(self, edit: Callable[[Document], None]) -> None:
        """All of it is in force: pods are ready, and those that were replaced have ended."""
        wanted = self._rendered(edit)
        changed = [body for name, body in wanted.items() if self._now.get(name) != body]
        deciding = [body for body in changed if _decides(body)]
        self._apply(deciding)
        self._apply([body for body in changed if body not in deciding])
        for (kind, namespace, name), _ in reversed(_sorted(self._now.keys() - wanted.keys(), self._now)):
            self._kubectl("delete", kind, name, f"--namespace={namespace}", "--wait", _PATIENCE)
        self._now = wanted

    def _apply(self, bodies: list[_Object]) -> None:
        objects = {_name(body): body for body in bodies}
        for kind in dict.fromkeys(name[0] for name, _ in _sorted(objects.keys(), objects)):
            alike = [body for body in bodies if body["kind"] == kind]
            listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": alike})
            apply = ("apply", "--server-side", "--force-conflicts", f"--field-manager={_MANAGER}", "-f", "-")
            self._kubectl(*apply, given=listed)
            for body in alike:
                _, namespace, name = _name(body)
                if kind == "Deployment":
                    self._kubectl("rollout", "status", f"deployment/{name}", f"--namespace={namespace}", _PATIENCE)
                    self._replaced_have_ended(namespace, body["spec"])
                if kind == "Job":
                    done = ("wait", "--for=condition=complete", f"job/{name}", f"--namespace={namespace}", _PATIENCE)
                    self._kubectl(*done)

    def _replaced_have_ended(self, namespace: str, spec: Mapping[str, Any]) -> None:
        """Rollouts are complete once pods are ready, and others may still serve."""
        labels = ",".join(f"{key}={value}" for key, value in spec["selector"]["matchLabels"].items())
        listed = json.loads(
            self._kubectl("get", "pods", f"--namespace={namespace}", f"--selector={labels}", "--output=json")
        )
        for pod in listed["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                name = pod["metadata"]["name"]
                self._kubectl("wait", "--for=delete", f"pod/{name}", f"--namespace={namespace}", _PATIENCE)

    def _rendered(self, edit: Callable[[Document], None]) -> _Objects:
        document = copy.deepcopy(yaml.safe_load(session.stack_file(self._lab).read_text()))
        edit(document["config"][KEY])
        self._file.write_text(yaml.safe_dump(document, sort_keys=False))
        site = declare(CHECKOUT, {session.STACK: self._file})[session.STACK]
        assert not site.error, site.error
        # Secrets are rendered without their values, and no step of these changes one.
        bodies = (dict(resource.body) for resource in site.resources if resource.kind in _ORDER)
        return {_name(body): body for body in bodies}

    def _kubectl(self, *arguments: str, given: str | None = None) -> str:
        done = subprocess.run(
            ["kubectl", *arguments],
            env=session.environment(self._lab),
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _name(body: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = body["metadata"]
    return str(body["kind"]), str(meta.get("namespace", "")), str(meta["name"])


def _decides(body: Mapping[str, Any]) -> bool:
    return _name(body)[2] in {"callers-tenants", "gatekeeper"}


def _sorted(names: Any, objects: Mapping[tuple[str, str, str], _Object]) -> list[tuple[tuple[str, str, str], _Object]]:
    return [(name, objects[name]) for name in sorted(names, key=lambda name: (_ORDER.index(name[0]), name))]
