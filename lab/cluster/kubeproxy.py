"""kube-proxy: the real one, in iptables mode, whose rules are confined to the lab's namespace."""

from __future__ import annotations

import json
from pathlib import Path

from lab.cluster import credentials
from lab.cluster.component import Component, own_component
from lab.paths import Lab

ACCOUNT = "kube-proxy"
ROLE = "system:node-proxier"
# Pods behind externalTrafficPolicy Local answer when they are on the node of this name.
NODE = "cp-1"


def settings(lab: Lab) -> dict[str, object]:
    """Its configuration file. Zeros in conntrack leave the host's limits alone, which a namespace cannot change."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": NODE,
        "clusterCIDR": str(lab.network.pods),
        "detectLocalMode": "ClusterCIDR",
        "clientConnection": {"kubeconfig": str(credentials.kubeconfig(lab, ACCOUNT))},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "nodePortAddresses": ["primary"],
        "iptables": {"localhostNodePorts": False, "minSyncPeriod": "200ms", "syncPeriod": "30s"},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def settings_file(lab: Lab) -> Path:
    return lab.home / "kube-proxy.json"


def write_settings(lab: Lab) -> None:
    """Write them unless they are there: kube-proxy ends itself when its file changes."""
    content = json.dumps(settings(lab), indent=2)
    if not settings_file(lab).exists() or settings_file(lab).read_text() != content:
        settings_file(lab).write_text(content)


def component(lab: Lab) -> Component:
    return own_component(
        lab,
        "kube-proxy",
        (str(lab.bin / "kube-proxy"), f"--config={settings_file(lab)}"),
        folder=lab.home,
        needs=credentials.kubeconfig(lab, ACCOUNT),
    )
