"""Verdicts on Cilium's objects, where the program changes what the machines made."""

from __future__ import annotations

import re

from policy.model import Resource
from policy.pods import containers
from sitectl.change.changes import Change
from sitectl.change.verdicts.model import Severity, Verdict, verdict
from stacks.plan.upgrades import steps

_AGENT = "cilium-agent"
_TAG = re.compile(r":v(\d[^@]*)")
# Documentation/operations/upgrade.rst and network/l2-announcements.rst of cilium/cilium v1.20.2.
_RUNS_ON = (
    "pods keep their network; until it is back no pod starts on the node, policies stay as they are there, and an "
    "address that it announces by ARP moves to another node"
)
_PODS = {
    "cilium": ("agent", _RUNS_ON),
    "cilium-envoy": ("proxy", "connections that a policy of HTTP or DNS leads through it are cut"),
    "cilium-operator": ("operator", "connections go on; addresses and identities are not given meanwhile"),
}
_READ = {"ConfigMap": "agents and operator read it when they next start"}


def is_of_it(change: Change) -> bool:
    """Whether Talos made the object."""
    return _resource(change).is_of_talos


def anything(change: Change) -> list[Verdict]:
    """An object of the manifest. None is ever deleted by the engine."""
    if change.op == "create":
        reason = "the object is the manifest's already, unless it runs another version; nothing restarts then"
        return [verdict(change, Severity.LIVE, "taken over from Talos", reason)]
    if change.op == "delete":
        return [verdict(change, Severity.LIVE, "left to the cluster", "it stays, unless the leftovers name it")]
    if change.op == "replace":
        why = f"{', '.join(change.replaced_by)} cannot be changed in place, and the program never deletes it"
        return [verdict(change, Severity.REPLACED, "`up` fails", why)]
    paths = [leaf.path for leaf in change.fields()]
    shown = ", ".join(paths[:3])
    if not any(path.startswith("spec.template") for path in paths):
        reason = _READ.get(change.kind, "nothing restarts")
        return [verdict(change, Severity.LIVE, f"changes {shown}", reason)]
    name = str(change.body["metadata"]["name"])
    what, reason = _PODS.get(name, ("pods", _RUNS_ON))
    pods = f"Cilium's {what}{_bump(change)}"
    if change.kind == "DaemonSet":
        rolling = (((change.after.get("spec") or {}).get("updateStrategy") or {}).get("rollingUpdate")) or {}
        pods += f" on each node, {rolling.get('maxUnavailable', 1)} at a time"
    return [verdict(change, Severity.RESTARTS, f"restarts {pods}: {shown}", reason), *_leap(change)]


def _leap(change: Change) -> list[Verdict]:
    """A step that Cilium does not support, as `sitectl upgrade-path` refuses it."""
    before, after = _version(change.before), _version(change.after)
    _, problems = steps({"cilium": before}, {"cilium": after}) if before and after else ([], [])
    return [verdict(change, Severity.REPLACED, problem.what, problem.fix) for problem in problems]


def _bump(change: Change) -> str:
    before, after = _version(change.before), _version(change.after)
    return f" {before} -> {after}" if before != after else ""


def _version(body: object) -> str:
    """Of the agent's image; empty for a workload without an agent."""
    if not isinstance(body, dict):
        return ""
    made = containers(Resource(type="kubernetes:apps/v1:DaemonSet", name="", body=body))
    images = [str(container.get("image", "")) for container in made if container.get("name") == _AGENT]
    tag = _TAG.search(images[0]) if images else None
    return tag[1] if tag else ""


def _resource(change: Change) -> Resource:
    return Resource(type=change.type, name=change.name, body=change.body)
