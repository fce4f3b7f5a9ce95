"""Questions to a Pod object; no side effects."""

from __future__ import annotations

from typing import Any

from lab.runner.state import Kind, Object


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def full_name(pod: Object) -> str:
    """namespace/name"""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def node_name(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def is_finished(pod: Object) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_deleting(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def uses_host_network(pod: Object) -> bool:
    return bool(pod["spec"].get("hostNetwork", False))


def restart_policy(pod: Object) -> str:
    return str(pod["spec"].get("restartPolicy", "Always"))


def grace_seconds(pod: Object) -> float:
    """How long its containers may take to end: the deletion's own grace, else the spec's, else 30 s."""
    asked = pod["metadata"].get("deletionGracePeriodSeconds")
    if asked is not None:
        return float(asked)
    return float(pod["spec"].get("terminationGracePeriodSeconds", 30))


def hostname(pod: Object) -> str:
    """The pod's host name; names of more than 63 characters are cut as Linux asks."""
    name = str(pod["spec"].get("hostname") or pod["metadata"]["name"])
    return name[:63].rstrip("-.")


def containers(pod: Object) -> list[tuple[Kind, Object]]:
    """Every container with its kind, init containers and sidecars first, in the spec's order."""
    ordered: list[tuple[Kind, Object]] = []
    for container in pod["spec"].get("initContainers") or []:
        ordered.append(("sidecar" if container.get("restartPolicy") == "Always" else "init", container))
    ordered.extend(("main", container) for container in pod["spec"]["containers"])
    return ordered


def should_restart(policy: str, kind: Kind, exit_code: int) -> bool:
    """Whether a container that ended runs again: sidecars always, init containers only after a failure."""
    if kind == "sidecar":
        return True
    if kind == "init":
        return exit_code != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def security(pod: Object, container: Object) -> dict[str, Any]:
    """The container's security context over the pod's."""
    return {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}


def named_port(container: Object, port: int | str) -> int:
    """A probe's port: a number, or the name of one of the container's ports.

    Raises KeyError for a name the container does not declare.
    """
    if isinstance(port, int) or str(port).isdigit():
        return int(port)
    for declared in container.get("ports") or []:
        if declared.get("name") == port:
            return int(declared["containerPort"])
    raise KeyError(port)


def references(pod: Object) -> set[tuple[str, str]]:
    """("Secret" | "ConfigMap", name) of everything that its volumes hold, so a change of one finds the pods."""
    referenced: set[tuple[str, str]] = set()
    for volume in pod["spec"].get("volumes") or []:
        sources = [volume, *(volume.get("projected", {}).get("sources") or [])]
        for source in sources:
            if secret := source.get("secret"):
                referenced.add(("Secret", secret.get("secretName") or secret.get("name", "")))
            if config_map := source.get("configMap"):
                referenced.add(("ConfigMap", config_map["name"]))
    return referenced
