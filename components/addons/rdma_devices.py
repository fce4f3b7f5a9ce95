"""What makes Kubernetes offer RDMA devices: NVIDIA's network operator with its RDMA shared device plugin alone.

Talos's own kernel modules drive the cards, so nothing here installs a driver, and no card is configured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from components.addons.addon import (
    Addon,
    AddonChart,
    AddonComponent,
    AddonContent,
    AddonImage,
    AddonObject,
    AddonRelease,
    AddonSite,
)
from components.specs.rdma_devices import LinkKind, RdmaDevicesSpec
from floor import gpu_nodes, namespaces
from floor.taints import Taint, tolerations

NAMESPACE = namespaces.NETWORK
RELEASE = "network-operator"
# The operator takes no policy of another name.
POLICY = "nic-cluster-policy"
_PREFIX = "rdma"
_VENDOR = "15b3"
_LINK_TYPES = {"roce": "ether", "infiniband": "infiniband"}
# By the operator's manifest of the plugin.
_CONTAINER = "rdma-shared-dp"
_SMALL = {"cpu": "20m", "memory": "64Mi"}
# Two images for each node, and the labels of feature discovery before them.
_PATIENCE_S = 900


def network_operator_values() -> dict[str, Any]:
    """Values of the network operator on nodes whose modules come with Talos: the operator and its definitions."""
    return {
        # The charts of the GPUs bring feature discovery, and it labels network cards too.
        "nfd": {"enabled": False, "deployNodeFeatureRules": False},
        "upgradeCRDs": True,
        "sriovNetworkOperator": {"enabled": False},
        "maintenanceOperator": {"enabled": False},
        "operator": {
            "admissionController": {"enabled": False},
            # Of the driver's container, which no policy here asks for.
            "ofedDriver": {"initContainer": {"enable": False}},
        },
    }


def resource_name(spec: RdmaDevicesSpec) -> str:
    """What a pod asks for, in full."""
    return f"{_PREFIX}/{spec.resource}"


def plugin_config(spec: RdmaDevicesSpec, link: LinkKind | None) -> str:
    """The plugin's configuration as JSON. link: of the cards; None for any, where the program does not know it."""
    selectors: dict[str, list[str]] = {"vendors": [_VENDOR]}
    if link is not None:
        selectors["linkTypes"] = [_LINK_TYPES[link]]
    if spec.interfaces:
        selectors["ifNames"] = list(spec.interfaces)
    offer = {
        "resourceName": spec.resource,
        "resourcePrefix": _PREFIX,
        "rdmaHcaMax": spec.pods_per_node,
        "selectors": selectors,
    }
    return json.dumps({"configList": [offer]})


def nic_cluster_policy(
    spec: RdmaDevicesSpec, link: LinkKind | None, taints: Iterable[Taint], image: str, *, waits: bool
) -> dict[str, Any]:
    """The operator's one policy: the device plugin on nodes with GPUs.

    image: the plugin's, by tag or with its digest. waits: until the operator reports that the plugin runs on each node.
    A report about an earlier policy ends this wait too: the operator's status (v26.4.1) names no generation.
    """
    name, _, digest = image.partition("@")
    path, _, tag = name.rpartition(":")
    repository, _, called = path.rpartition("/")
    annotations = {"annotations": {"pulumi.com/waitFor": "jsonpath={.status.state}=ready"}} if waits else {}
    # Other nodes load no module for RDMA.
    is_gpu_node = {"key": gpu_nodes.PCI_LABEL, "operator": "In", "values": ["true"]}
    return {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": POLICY, **annotations},
        "spec": {
            "tolerations": tolerations(taints),
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [is_gpu_node]}]
                }
            },
            "rdmaSharedDevicePlugin": {
                "repository": repository,
                "image": called,
                # The operator joins a digest by @, and a tag by a colon.
                "version": digest or tag,
                "config": plugin_config(spec, link),
                "containerResources": [{"name": _CONTAINER, "requests": _SMALL}],
            },
        },
    }


def content(site: AddonSite) -> AddonContent:
    """Works when the operator reports that the plugin runs on each node.

    A mark on the node, as the GPUs' stack writes one, would be a second patch of the same object by the same field
    manager, and each of the two would take the other back.

    The policy goes before the operator, which then takes the plugin away. Its definitions stay, as Helm leaves them.
    """
    chart, image = site.charts["network_operator"], site.images["rdma_device_plugin"]
    policy = nic_cluster_policy(
        site.spec(RdmaDevicesSpec), site.link, site.gpu_taints, image, waits=not site.dead_nodes
    )
    return AddonContent(
        releases=[
            AddonRelease(name=RELEASE, chart=chart, values=network_operator_values(), hooks_upgrade_definitions=True)
        ],
        objects=[AddonObject(suffix="policy", body=policy, patience_s=_PATIENCE_S)],
    )


NETWORK_OPERATOR = Addon(
    key="network_operator",
    switch="cluster.rdma_devices.system",
    on="network_operator",
    section="cluster.rdma_devices",
    namespace=NAMESPACE,
    charts=(
        AddonChart(
            name="network_operator",
            release=RELEASE,
            uninstalled="nodes offer no RDMA device any more; pods that have them keep them until they end",
            upgraded="its pods restart; pods that have RDMA devices keep them, and `up` waits until the plugin runs "
            "again",
        ),
    ),
    images=(
        AddonImage(
            name="rdma_device_plugin",
            container=_CONTAINER,
            user="RDMA devices",
            tag_prefix="network-operator-",
            next_to="network_operator",
        ),
    ),
    component=AddonComponent(
        name="rdma-devices",
        resource_type="rdma_devices:RdmaDevices",
        # The plugin registers with the kubelet from the host's network, and reads /dev.
        pod_security="privileged",
        content=content,
        # The stack of the GPUs, whose feature discovery labels the nodes. No model waits for the devices.
        needs=("gpu_operator", "device_plugin"),
    ),
)
