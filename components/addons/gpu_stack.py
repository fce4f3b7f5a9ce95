"""What makes Kubernetes offer GPUs: NVIDIA's GPU operator, or device plugin, feature discovery and DCGM exporter.

Driver, container toolkit and fabric manager come with Talos's extensions, so nothing here installs any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from components.addons import gpu_counters
from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonObject,
    AddonRelease,
    AddonSite,
    Offer,
)
from components.network_policies import ANY_NAMESPACE, allow_ingress, peer
from components.scrape_target import NODE_LABEL, ScrapeTarget
from floor import gpu_nodes, namespaces
from floor.taints import Taint, tolerations
from services.watcher import variables as watcher

Stack = Literal["operator", "device_plugin"]
NAMESPACE = namespaces.GPU_STACK
# What Talos's extensions install below, and where a container finds it (siderolabs/docs, nvidia-gpu.mdx).
_DRIVER_ROOT = "/usr/local"
_METRICS_PORT = 9400
# Labels of the exporter's pods, by the operator and by its own chart.
_EXPORTERS: Mapping[Stack, Mapping[str, str]] = {
    "operator": {"app": "nvidia-dcgm-exporter"},
    "device_plugin": {"app.kubernetes.io/name": "dcgm-exporter"},
}
# Images of several GB for each node, and a validation of each GPU.
_PATIENCE_S = 1800
# The error of a wait that failed names only a JSONPath.
_WAITS = (
    "`up` waits up to {minutes} minutes until each node offers its GPUs; `python -m sitectl gpu-nodes {{stack}}` shows "
    "what a node waits for"
)
_STACK = "inference-platform/gpu-stack"
# Charts of NVIDIA request nothing for these pods. So little that they never keep a replica off its node.
_SMALL = {"requests": {"cpu": "20m", "memory": "64Mi"}}
# Talos has no systemd whose services the manager could stop; operators that do not read this variable stop them as the
# driver is the host's (NVIDIA/gpu-operator#2702).
_MIG_MANAGER = {
    "enabled": True,
    "env": [{"name": "WITH_SHUTDOWN_HOST_GPU_CLIENTS", "value": "false"}],
    "resources": _SMALL,
}
OF_WATCHER = tuple(Taint(key=key, value="", effect="NoSchedule") for key in (watcher.CHECK, watcher.FAULT))
"""Taints of the watcher of GPU faults, which pods of the stack tolerate where it runs."""
_EXPORTER = {"requests": {"cpu": "100m", "memory": "256Mi"}}


def operator_values(taints: Iterable[Taint], *, cuts: bool = False) -> dict[str, Any]:
    """Values of the GPU operator on nodes whose driver comes with Talos.

    taints: of the nodes with GPUs. cuts: whether a node names a layout by which its GPUs are cut (MIG); without one,
    GPUs are offered whole, and nothing looks for slices.
    """
    answered = tolerations(taints)
    return {
        "driver": {"enabled": False},
        "toolkit": {"enabled": False},
        "hostPaths": {"driverInstallDir": _DRIVER_ROOT},
        # Definitions leave with the operator, so that `destroy` leaves none.
        "operator": {"runtimeClass": gpu_nodes.RUNTIME_CLASS, "cleanupCRD": True, "upgradeCRD": True},
        "daemonsets": {"tolerations": answered},
        # Mixed: slices have resources of their own, and whole GPUs keep theirs.
        "mig": {"strategy": "mixed" if cuts else "none"},
        "migManager": _MIG_MANAGER if cuts else {"enabled": False},
        "devicePlugin": {"resources": _SMALL},
        "gfd": {"resources": _SMALL},
        "validator": {"resources": _SMALL},
        # A ServiceMonitor needs definitions that this program does not bring.
        "dcgmExporter": {
            "serviceMonitor": {"enabled": False},
            "resources": _EXPORTER,
            "config": {"name": "dcgm-counters", "create": True, "data": gpu_counters.csv()},
        },
        "node-feature-discovery": {"worker": {"tolerations": answered}},
    }


def device_plugin_values(taints: Iterable[Taint]) -> dict[str, Any]:
    """Values of the device plugin with GPU feature discovery, on nodes whose driver comes with Talos."""
    answered = tolerations(taints)
    return {
        # By the driver's own library: there is no other sign of a GPU below Talos's paths.
        "deviceDiscoveryStrategy": "nvml",
        "deviceListStrategy": "envvar",
        "migStrategy": "none",
        # A plugin without a driver restarts, where it would else wait without a word.
        "failOnInitError": True,
        "runtimeClassName": gpu_nodes.RUNTIME_CLASS,
        "tolerations": answered,
        "resources": _SMALL,
        "gfd": {"enabled": True},
        "nfd": {"worker": {"tolerations": answered}},
    }


def exporter_values(taints: Iterable[Taint]) -> dict[str, Any]:
    """Values of the DCGM exporter where no operator runs it."""
    return {
        "runtimeClassName": gpu_nodes.RUNTIME_CLASS,
        "nodeSelector": {gpu_nodes.PCI_LABEL: "true"},
        "tolerations": tolerations(taints),
        "resources": _EXPORTER,
        "serviceMonitor": {"enabled": False},
        "customMetrics": gpu_counters.csv(),
    }


def runtime_class() -> dict[str, Any]:
    """The class that replicas run in; the operator makes it itself. Talos's toolkit brings the handler."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": gpu_nodes.RUNTIME_CLASS},
        "handler": gpu_nodes.RUNTIME_CLASS,
    }


def network_policy(exporter: Mapping[str, str]) -> dict[str, Any]:
    """Any pod may scrape the exporter, whose pods have these labels."""
    return allow_ingress("dcgm-exporter", NAMESPACE, exporter, [([peer({}, ANY_NAMESPACE)], [_METRICS_PORT])])


def offered(node: str, offer: Offer, installed: str) -> dict[str, Any]:
    """A mark on the node, written when it offers all its GPUs. installed: what must have been installed by then."""
    wait = f"jsonpath={{.status.allocatable['{offer.resource}']}}={offer.count}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node, "annotations": {_STACK: installed, "pulumi.com/waitFor": wait}},
    }


def validated(installed: str) -> dict[str, Any]:
    """A mark on the operator's one policy, written when its validators have passed on every node with GPUs."""
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {
            "name": "cluster-policy",
            "annotations": {_STACK: installed, "pulumi.com/waitFor": "jsonpath={.status.state}=ready"},
        },
    }


def _content(stack: Stack, site: AddonSite, releases: Sequence[AddonRelease]) -> AddonContent:
    """Works when every node offers all its GPUs; where the nodes are not listed, when the stack itself reports so."""
    # Another version of a chart is waited for again.
    installed = " ".join(f"{release.name}-{release.chart.version}" for release in releases)
    marks = [("validated", validated(installed))] if stack == "operator" else []
    marks += [(f"offered-{node}", offered(node, offer, installed)) for node, offer in sorted(site.offers.items())]
    return AddonContent(
        releases=releases,
        network_policies=[network_policy(_EXPORTERS[stack])],
        before=[] if stack == "operator" else [runtime_class()],
        objects=[
            AddonObject(suffix=suffix, body=body, patience_s=_PATIENCE_S, is_patch=True) for suffix, body in marks
        ],
        notice=_WAITS.format(minutes=_PATIENCE_S // 60) if marks else "",
    )


def _taints(site: AddonSite) -> list[Taint]:
    """A storage system does without those of the watcher: the pods that it has on a node stay there."""
    return [*site.gpu_taints, *(OF_WATCHER if site.watched else ())]


def operator_content(site: AddonSite) -> AddonContent:
    """The GPU operator."""
    values = operator_values(_taints(site), cuts=site.cuts_gpus)
    release = AddonRelease(
        name="gpu-operator", chart=site.charts["gpu_operator"], values=values, hooks_upgrade_definitions=True
    )
    return _content("operator", site, [release])


def device_plugin_content(site: AddonSite) -> AddonContent:
    """The device plugin, and after it the exporter."""
    taints = _taints(site)
    releases = [
        AddonRelease(
            name="nvidia-device-plugin", chart=site.charts["device_plugin"], values=device_plugin_values(taints)
        ),
        AddonRelease(name="dcgm-exporter", chart=site.charts["dcgm_exporter"], values=exporter_values(taints)),
    ]
    return _content("device_plugin", site, releases)


def _component(content: Callable[[AddonSite], AddonContent]) -> AddonComponent:
    return AddonComponent(
        name="gpu-stack",
        resource_type="gpu_stack:GpuStack",
        pod_security="privileged",
        content=content,
        gives="hardware",
    )


def _target(stack: Stack) -> ScrapeTarget:
    """The DCGM exporter, on each node with GPUs. What uses a GPU has its names as `exported_pod`."""
    return ScrapeTarget(
        name="gpus", job="gpus", namespace=NAMESPACE, pods=_EXPORTERS[stack], port=_METRICS_PORT, labels=[NODE_LABEL]
    )


def _chart(name: str, release: str) -> AddonChart:
    return AddonChart(
        name=name,
        release=release,
        uninstalled="replicas run on, and none can start: nodes offer no GPU any more",
        upgraded="its pods restart, one node at a time; replicas run on, and `up` waits until each node offers its "
        "GPUs again",
    )


GPU_OPERATOR = Addon(
    key="gpu_operator",
    switch="cluster.gpu_stack",
    on="operator",
    namespace=NAMESPACE,
    charts=(_chart("gpu_operator", "gpu-operator"),),
    targets=(_target("operator"),),
    component=_component(operator_content),
)
DEVICE_PLUGIN = Addon(
    key="device_plugin",
    switch="cluster.gpu_stack",
    on="device_plugin",
    namespace=NAMESPACE,
    charts=(
        _chart("device_plugin", "nvidia-device-plugin"),
        AddonChart(
            name="dcgm_exporter",
            release="dcgm-exporter",
            uninstalled="GPUs are measured no more; nothing else changes",
            upgraded="metrics of GPUs pause",
        ),
    ),
    targets=(_target("device_plugin"),),
    component=_component(device_plugin_content),
)
