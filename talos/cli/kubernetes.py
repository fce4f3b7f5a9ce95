"""Calls of Kubernetes for a node: is it Ready and as stated, cordon, drain, delete. By kubectl, which can drain.

kubectl gets the kubeconfig through a file without a place on the disk.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floor import namespaces, storage_nodes
from floor.kubectl import is_away, kubectl, last_lines
from talos.cli import node_metadata
from talos.cli.failures import CommandError, InputError
from talos.cli.waiting import PendingError, Watch
from talos.draining import SUCCESSOR_FIRST, movable, short_budgets, waits_for_others
from talos.secrets import variables

# On a node that was cordoned here: only then is it made schedulable again.
OURS = "inference-platform/taken-down-by"
_MARK = "python -m talos"
_CALL_S = 30
# Until a pod's successor is ready on another node, its image pulled there first.
_SUCCESSOR_S = 120
_API_PORT = 6443
# The provider takes over managers whose names begin with kubectl: its next update would remove the time of a restart,
# and so start the pods once more, which no preview shows.
_MANAGER = "inference-platform-drain"
_CONTROL_PLANES = "node-role.kubernetes.io/control-plane"
_VOLUMES = "volumes.longhorn.io"
# What it prints where an object is no longer of the version that a patch is for.
_CHANGED = "the object has been modified"


class KubernetesError(CommandError):
    """kubectl was refused, or failed in a way that does not pass."""


class DrainError(CommandError):
    """Pods did not leave the node in time."""


@dataclass(frozen=True)
class Kubernetes:
    """A cluster's API, as an administrator."""

    kubeconfig: str = field(repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Kubernetes | None:
        """The cluster of $KUBECONFIG_TEXT; None where there is none yet."""
        text = environment.get(variables.KUBECONFIG, "")
        return cls(text) if text.strip() else None

    def node(self, name: str) -> dict[str, Any] | None:
        """The Node object, or None where there is none. PendingError while the API does not answer."""
        text = self._run("get", "node", name, "--ignore-not-found", "-o", "json")
        node: dict[str, Any] | None = json.loads(text) if text.strip() else None
        return node

    def control_planes(self) -> dict[str, str]:
        """Address of each control plane that has a Node object, by name. PendingError while the API does not answer."""
        nodes = self._listed("get", "nodes", "--selector", _CONTROL_PLANES)
        return {
            node["metadata"]["name"]: address["address"]
            for node in nodes
            for address in reversed(node.get("status", {}).get("addresses", ()))
            if address["type"] == "InternalIP"
        }

    def api_versions(self) -> dict[str, str]:
        """Version of the API server on each control plane, asked of that one itself; empty where it reports none.

        PendingError while one of them does not answer.
        """
        return {name: self._api_version(host) for name, host in self.control_planes().items()}

    def _api_version(self, host: str) -> str:
        shown = f"[{host}]" if ":" in host else host
        text = self._run(f"--server=https://{shown}:{_API_PORT}", "get", "--raw", "/version")
        return str(json.loads(text or "{}").get("gitVersion", ""))

    def require_ready(self, name: str) -> None:
        """PendingError until the node is there and Ready."""
        node = self.node(name)
        if node is None:
            raise PendingError("Kubernetes does not know the node yet")
        conditions = node.get("status", {}).get("conditions", [])
        ready = next((condition for condition in conditions if condition["type"] == "Ready"), {"status": "Unknown"})
        if ready["status"] != "True":
            raise PendingError(f"its node is not Ready: {ready.get('message') or ready.get('reason') or 'no kubelet'}")

    def require_whole_volumes(self, name: str) -> None:
        """PendingError while the node stores for Longhorn and a volume in use has fewer copies than declared.

        The copies on this node may be the only ones then, and Longhorn would hold the drain until it has others.
        """
        node = self.node(name)
        if node is None or node["metadata"].get("labels", {}).get(storage_nodes.LABEL) != storage_nodes.VALUE:
            return
        if not self._run("get", "crd", _VOLUMES, "--ignore-not-found", "-o", "name").strip():
            return
        volumes = self._listed("get", _VOLUMES, "--namespace", namespaces.STORAGE)
        degraded = sorted(_claim(volume) for volume in volumes if volume["status"].get("robustness") == "degraded")
        if degraded:
            raise PendingError(f"Longhorn still rebuilds copies of {', '.join(degraded)}")

    def require_evictable(self, name: str) -> None:
        """PendingError while a budget holds a pod on the node until one elsewhere is Ready.

        A replica that loads may take longer than a drain; a node that is not cordoned serves on meanwhile.
        """
        budgets = self._listed("get", "poddisruptionbudgets", "--all-namespaces")
        for namespace, budget, selector in short_budgets(budgets):
            if waits_for_others(self._listed("get", "pods", "--namespace", namespace, "--selector", selector), name):
                raise PendingError(f"pods of {namespace}/{budget} on other nodes are not Ready yet")

    def require_stated(self, name: str, config: bytes, watch: Watch) -> None:
        """Do what Talos cannot of a config's labels, annotations and taints; PendingError until the node has them."""
        node, stated = self.node(name), node_metadata.Stated.of(config)
        if node is None:
            raise PendingError("Kubernetes does not know the node yet")
        patch, lines = node_metadata.correction(node, stated)
        if patch:
            for line in lines:
                watch.say(line)
            self._run("patch", "node", name, "--type=merge", f"--patch={json.dumps(patch)}")
            node = self.node(name) or node
        if lacks := node_metadata.missing(node, stated):
            raise PendingError(f"its node lacks {', '.join(lacks)}", fix=node_metadata.FIX_MISSING)

    def drain(self, name: str, watch: Watch, timeout_s: int) -> bool:
        """Cordon, start successors that are wanted first, evict as PodDisruptionBudgets allow; was there a node?

        DrainError when pods are still there after `timeout_s`; the node stays cordoned, and a repetition goes on.
        """
        node = watch.until("to look for its node", lambda: self.node(name))
        if node is None:
            return False
        if not node["spec"].get("unschedulable"):
            self._run("annotate", "node", name, "--overwrite", f"{OURS}={_MARK}")
        watch.until("to cordon it", lambda: self._run("cordon", name))
        self._move(name, watch)
        watch.say("draining")
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={timeout_s}s")
        done = self._kubectl("drain", name, *options, timeout_s=timeout_s + _CALL_S)
        if done.returncode != 0:
            raise DrainError(
                f"{name}: its pods did not leave in {timeout_s} s: {last_lines(done.stderr)}",
                fix="see which PodDisruptionBudget allows no eviction (kubectl get pdb -A); run it again, or raise "
                "drain_timeout_s",
            )
        return True

    def _move(self, name: str, watch: Watch) -> None:
        """Let Deployments start successors elsewhere; a pod whose successor does not come is evicted like others."""
        label = ",".join(f"{key}={value}" for key, value in SUCCESSOR_FIRST.items())
        on_node = ("--all-namespaces", "--field-selector", f"spec.nodeName={name}", "--selector", label)
        moved = movable(watch.until("to look for its pods", lambda: self._listed("get", "pods", *on_node)))
        for namespace, deployment in moved:
            watch.say(f"starting a successor of {namespace}/{deployment} elsewhere")
            restart = (f"deployment/{deployment}", "--namespace", namespace, f"--field-manager={_MANAGER}")
            self._run("rollout", "restart", *restart)
        for namespace, deployment in moved:
            waiting = (f"deployment/{deployment}", "--namespace", namespace, f"--timeout={_SUCCESSOR_S}s")
            done = self._kubectl("rollout", "status", *waiting, timeout_s=_SUCCESSOR_S + _CALL_S)
            if done.returncode != 0:
                watch.say(
                    f"no successor of {namespace}/{deployment} is ready elsewhere after {_SUCCESSOR_S} s: evicting it; "
                    "what needs it fails until one is"
                )

    def release(self, name: str) -> None:
        """Let pods onto the node again, if it was cordoned here."""
        node = self.node(name)
        if node is not None and OURS in node["metadata"].get("annotations", {}):
            self._run("uncordon", name)
            self._run("annotate", "node", name, f"{OURS}-")

    def delete_node(self, name: str) -> None:
        """Delete the Node object; nothing happens where there is none."""
        self._run("delete", "node", name, "--ignore-not-found", "--wait=false")

    def delete_objects(self, bodies: Sequence[Mapping[str, object]]) -> None:
        """Delete objects by API version, kind and name; nothing happens for those that are not there.

        PendingError while the API does not answer.
        """
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
        self._run("delete", "--filename=-", "--ignore-not-found", "--wait=false", given=given)

    def _listed(self, *arguments: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self._run(*arguments, "-o", "json") or "{}").get("items", [])
        return listed

    def _run(self, *arguments: str, given: str | None = None) -> str:
        limit = f"--request-timeout={_CALL_S}s"
        done = self._kubectl(*arguments, limit, timeout_s=_CALL_S * 2, given=given)
        if done.returncode == 0:
            return done.stdout
        last_line = last_lines(done.stderr)
        if _CHANGED in last_line:
            raise PendingError(f"its node changed meanwhile: {last_line}")
        if is_away(last_line):
            raise PendingError(f"Kubernetes does not answer: {last_line}")
        raise KubernetesError(f"kubectl {_verb(arguments)}: {last_line}", fix="fix that, then run it again")

    def _kubectl(self, *arguments: str, timeout_s: float, given: str | None = None) -> subprocess.CompletedProcess[str]:
        hidden = (variables.SECRETS, variables.CONFIG, variables.TALOSCONFIG)
        try:
            return kubectl(self.kubeconfig, *arguments, timeout_s=timeout_s, given=given, hidden=hidden)
        except FileNotFoundError:
            raise InputError("kubectl is not on PATH", fix="install kubectl where pulumi runs") from None
        except subprocess.TimeoutExpired:
            raise PendingError("Kubernetes does not answer: kubectl took too long") from None


def _claim(volume: Mapping[str, Any]) -> str:
    """The claim of a volume of Longhorn's, or its own name."""
    claim = volume["status"].get("kubernetesStatus") or {}
    return f"{claim['namespace']}/{claim['pvcName']}" if claim.get("pvcName") else str(volume["metadata"]["name"])


def _verb(arguments: tuple[str, ...]) -> str:
    return next(argument for argument in arguments if not argument.startswith("--"))
