"""Kubernetes' rules about steps: an API server goes one minor version at a time, and no kubelet is newer than one.

Source: kubernetes.io/releases/version-skew-policy. A kubelet talks to any API server behind the cluster's endpoint, so
all of them count, but that of its own machine: Talos restarts both, and a single control plane knows no order.
"""

from __future__ import annotations

import re

import yaml

from floor.releases import between
from talos.cli.failures import NotAllowedError
from talos.cli.kubernetes import Kubernetes
from talos.cli.waiting import PendingError

_MINOR = re.compile(r"v?1\.(\d+)\.")


def require_next_api_server(name: str, config: bytes, cluster: Kubernetes) -> None:
    """NotAllowedError where a control plane's API server would go over a minor version."""
    wanted = image_version(config, "cluster", "apiServer")
    serves = cluster.api_versions().get(name, "") if wanted else ""
    if serves and (skipped := between(serves, wanted)):
        raise NotAllowedError(
            f"{name}: its API server is {serves} and does not become {wanted} in one step; one minor version at a time",
            fix=f"set kubernetes in stacks/facts/versions.yaml to the newest {skipped}, run `up`, and go on from there",
        )


def require_no_newer_kubelet(name: str, config: bytes, cluster: Kubernetes) -> None:
    """Look before a machine gets a config whose kubelet is another one.

    On a control plane NotAllowedError where another one's API server is older than the kubelet would be. On a worker
    PendingError: control planes go first, and their API servers may be starting still.
    """
    kubelet = minor(image_version(config, "machine", "kubelet"))
    if kubelet is None or kubelet <= (_running_kubelet(name, cluster) or 0):
        return
    servers = {other: version for other, version in cluster.api_versions().items() if other != name}
    older = {
        other: version for other, version in servers.items() if (of_server := minor(version)) and of_server < kubelet
    }
    if not older:
        return
    behind = ", ".join(f"{version} on {other}" for other, version in sorted(older.items()))
    if image_version(config, "cluster", "apiServer"):
        raise NotAllowedError(
            f"{name}: its kubelet would be 1.{kubelet} with API servers of {behind}; no kubelet may be newer than an "
            "API server",
            fix="name the kubelet of now as `kubelet` in stacks/facts/versions.yaml and run `up`, which moves the "
            "control planes; then take that line out and run `up` again",
        )
    raise PendingError(f"its kubelet would be 1.{kubelet}, and there are API servers of {behind}")


def require_api_server(name: str, config: bytes, cluster: Kubernetes) -> None:
    """PendingError until the API server of a control plane is of its config's minor version."""
    wanted = minor(image_version(config, "cluster", "apiServer"))
    if wanted is None:
        return
    serves = cluster.api_versions().get(name, "")
    serves_minor = minor(serves)
    if serves_minor is not None and serves_minor < wanted:
        raise PendingError(f"its API server is {serves} still")


def _running_kubelet(name: str, cluster: Kubernetes) -> int | None:
    node = cluster.node(name) or {}
    return minor(str(node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", "")))


def minor(version: str) -> int | None:
    """The minor version of `v1.36.3`; None for what has none, such as a build without a version."""
    match = _MINOR.match(version)
    return int(match.group(1)) if match else None


def image_version(config: bytes, part: str, program: str) -> str:
    """The tag of a program's image in a machine config, such as `machine` `kubelet`; empty where it names none."""
    base = next(
        (document for document in yaml.safe_load_all(config) if isinstance(document, dict) and "kind" not in document),
        {},
    )
    image = str(((base.get(part) or {}).get(program) or {}).get("image", ""))
    return image.partition("@")[0].rpartition(":")[2]
