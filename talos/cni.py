"""The pod network: Cilium over KubePrism, Talos's own flannel, or an external one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from floor import namespaces, node_ports
from talos.documents.document import Wire
from talos.documents.problems import ConfigError, ConfigProblem, require_none
from talos.documents.rendering import render

# Talos's load balancer for the API server on every machine: works before any pod network does.
KUBE_PRISM_PORT = 7445

_AGENT_CAPABILITIES = """
CHOWN KILL NET_ADMIN NET_RAW IPC_LOCK SYS_ADMIN SYS_RESOURCE DAC_OVERRIDE FOWNER SETGID SETUID
"""
_CLEANING_CAPABILITIES = ["NET_ADMIN", "SYS_ADMIN", "SYS_RESOURCE"]
_NAMESPACES = "source_namespace,destination_namespace"


@dataclass(frozen=True, kw_only=True)
class Flannel:
    """Talos brings the pod network itself; no network policies."""

    @property
    def name(self) -> Literal["flannel"]:
        return "flannel"


@dataclass(frozen=True, kw_only=True)
class Cilium:
    """Cilium in place of kube-proxy too. `manifest` is its rendered chart, out of `cilium_manifest`.

    Talos applies it as soon as there is an API server, so that nodes become Ready without any help. It makes each
    object once: changes reach a running cluster through the Kubernetes API. Without a manifest a person must
    install Cilium right after bootstrap; until then no node is Ready.
    """

    manifest: str | None = field(default=None, repr=False)

    @property
    def name(self) -> Literal["cilium"]:
        return "cilium"


@dataclass(frozen=True, kw_only=True)
class External:
    """Something that this project does not bring gives pods their network, and opens the firewall for it."""

    @property
    def name(self) -> Literal["external"]:
        return "external"


CNI = Cilium | Flannel | External


def cilium_values(*, bgp: bool = False, measured: bool = False) -> dict[str, Any]:
    """The chart values that Cilium needs on Talos, whatever else a site sets.

    bgp: it announces addresses by BGP. measured: agents and Hubble serve metrics.
    """
    announcing = {"enabled": True, "secretsNamespace": {"create": True, "name": namespaces.BGP_SECRETS}}
    return {
        "ipam": {"mode": "kubernetes"},
        "kubeProxyReplacement": True,
        "k8sServiceHost": "localhost",
        "k8sServicePort": KUBE_PRISM_PORT,
        # For sites whose load balancers have their addresses from Cilium; without a policy nothing is announced.
        "l2announcements": {"enabled": True},
        **({"bgpControlPlane": announcing} if bgp else {}),
        # The publisher adds digests to the chart after the release's tag; by tag, both charts render to the same text.
        "image": {"useDigest": False},
        "operator": {"image": {"useDigest": False}},
        **(_measured() if measured else {"hubble": {"enabled": False}}),
        # Talos mounts cgroup v2 itself and lets no pod load kernel modules.
        "cgroup": {"autoMount": {"enabled": False}, "hostRoot": "/sys/fs/cgroup"},
        "securityContext": {
            "capabilities": {
                "ciliumAgent": _AGENT_CAPABILITIES.split(),
                "cleanCiliumState": list(_CLEANING_CAPABILITIES),
            }
        },
    }


def _measured() -> dict[str, Any]:
    """Metrics at ports of each node. Hubble counts flows, and answers on a socket of its node alone."""
    return {
        "prometheus": {"enabled": True, "port": node_ports.CILIUM_AGENT},
        "hubble": {
            "enabled": True,
            "listenAddress": "",
            # The chart makes its certificates again at each rendering, and would put their keys into machine configs.
            "tls": {"enabled": False},
            # By namespace, of which a site has few: by pod, series would grow with every start of one.
            "metrics": {"port": node_ports.HUBBLE, "enabled": [f"drop:labelsContext={_NAMESPACES}", "flow"]},
        },
    }


def cilium_manifest(rendered: str) -> str:
    """Cilium's chart, rendered with `cilium_values` for the namespace kube-system, as the text of an inline manifest.

    The same objects always give the same text. ConfigError for what would not work in a cluster that is still cold, or
    not be the same twice: Helm hooks, keys made while rendering, another way to the API server, missing parts.
    """
    try:
        objects = [manifest for manifest in yaml.load_all(rendered, Loader=yaml.CSafeLoader) if manifest]
    except yaml.YAMLError:
        raise ConfigError("Cilium's manifest is not YAML", fix="render the chart again with `helm template`") from None
    if not all(isinstance(manifest, dict) and isinstance(manifest.get("metadata"), dict) for manifest in objects):
        raise ConfigError("Cilium's manifest holds more than Kubernetes objects", fix="render the chart again")
    require_none(list(_problems(objects)))
    return render([_sorted(manifest) for manifest in sorted(objects, key=_place)])


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _place(manifest: Wire) -> tuple[bool, str, str, str]:
    """Namespaces first, as those who live in them need them."""
    metadata = manifest["metadata"]
    return manifest["kind"] != "Namespace", manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _problems(objects: list[Wire]) -> Iterator[ConfigProblem]:
    by_name = {(manifest.get("kind"), manifest["metadata"].get("name")): manifest for manifest in objects}
    for kind, name in (("DaemonSet", "cilium"), ("Deployment", "cilium-operator"), ("ConfigMap", "cilium-config")):
        if (kind, name) not in by_name:
            yield ConfigProblem(
                document=("Cilium's manifest", ""),
                what=f"has no {kind} {name}",
                fix="render the whole chart, release `cilium`",
            )
    for manifest in objects:
        document = str(manifest.get("kind")), str(manifest["metadata"].get("name"))
        if "helm.sh/hook" in (manifest["metadata"].get("annotations") or {}):
            yield ConfigProblem(
                document=document,
                what="is a Helm hook, which nothing runs",
                fix="switch off the value that asks for it",
            )
        if manifest.get("kind") == "Secret" and (manifest.get("data") or manifest.get("stringData")):
            yield ConfigProblem(
                document=document,
                what="was made while rendering: another one each time, and in every machine config",
                fix="render with cilium_values(), which makes no certificates",
            )
    for kind, name in (("DaemonSet", "cilium"), ("Deployment", "cilium-operator")):
        if (kind, name) in by_name and not _over_kube_prism(by_name[kind, name]):
            yield ConfigProblem(
                document=(kind, name),
                what="does not ask for the API server where KubePrism answers",
                allowed=f"KUBERNETES_SERVICE_HOST localhost, KUBERNETES_SERVICE_PORT {KUBE_PRISM_PORT}",
                fix="render with cilium_values()",
            )


def _over_kube_prism(workload: Wire) -> bool:
    """Without it a pod asks for the API server's cluster address, which Cilium itself has yet to make work."""
    containers = workload["spec"]["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in containers[0].get("env", ())}
    address = variables.get("KUBERNETES_SERVICE_HOST"), variables.get("KUBERNETES_SERVICE_PORT")
    return address == ("localhost", str(KUBE_PRISM_PORT))
