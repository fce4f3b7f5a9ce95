"""Patches that set what a key of the site sets, or take away what the platform needs: each is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.loader import load_site
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_mended

PATCH = f"{M}.patches.own"


def wrong(dotted: str, value: Any, said: str, key: str = "") -> Wrong:
    patch: Any = value
    for part in reversed(dotted.split(".")):
        patch = {part: patch}
    return Wrong({PATCH: patch}, f"{PATCH}.{key or dotted}", said, {PATCH: None})


def document(kind: str, *, at: str = "kind", says: str = "", **fields: Any) -> Wrong:
    patch = {"apiVersion": "v1alpha1", "kind": kind, **fields}
    return Wrong({PATCH: patch}, f"{PATCH}.{at}", says or kind, {PATCH: None})


DELETE = {"$patch": "delete"}
WRONG: dict[str, Wrong] = {
    "taints": wrong("machine.nodeTaints", {"x": "y:NoSchedule"}, "use taints"),
    "taints by a flag": wrong("machine.kubelet.extraArgs.register-with-taints", "x=y:NoSchedule", "use taints"),
    "open kubelet by a flag": wrong(
        "machine.kubelet.extraArgs.authorization-mode", "AlwaysAllow", "which Talos decides"
    ),
    "read-only port by a flag": wrong("machine.kubelet.extraArgs.read-only-port", "10255", "the platform decides"),
    "no node": wrong("machine.kubelet.skipNodeRegistration", True, "is a node of the cluster"),
    "no KubePrism": wrong("machine.features.kubePrism.enabled", False, "Cilium reaches the Kubernetes API"),
    "KubePrism deleted": wrong("machine.features.kubePrism", DELETE, "Cilium reaches the Kubernetes API"),
    "own Services": wrong("cluster.apiServer.extraArgs.service-cluster-ip-range", "10.9.0.0/16", "networks.services"),
    "own pods": wrong("cluster.controllerManager.extraArgs.cluster-cidr", "10.9.0.0/16", "networks.pods"),
    "etcd's address": wrong("cluster.etcd.extraArgs.listen-client-urls", "http://0.0.0.0:2379", "networks.nodes"),
    "kube-proxy beside Cilium": wrong("cluster.proxy.disabled", False, "Cilium takes its place"),
    "no CoreDNS": wrong("cluster.coreDNS.disabled", True, "pods find Services"),
    "no scheduler": wrong("machine.controlPlane.scheduler.disabled", True, "place pods"),
    "cloud provider that is not there": wrong("cluster.externalCloudProvider.enabled", True, "none is installed"),
    "sysctls": wrong("machine.sysctls", {"vm.swappiness": "1"}, "use sysctls"),
    "sysfs": wrong("machine.sysfs", {"kernel.x": "1"}, "use sysfs"),
    "kubelet's configuration": wrong("machine.kubelet.extraConfig", {"maxPods": 64}, "use kubelet_config"),
    "kubelet deleted": wrong("machine.kubelet", DELETE, "sets machine.kubelet,"),
    "manifest that is no YAML": wrong(
        "cluster.inlineManifests",
        [{"name": "x", "contents": "a: [1"}],
        "no YAML of Kubernetes objects",
        "cluster.inlineManifests.0.contents",
    ),
    "manifest that is a word": wrong(
        "cluster.inlineManifests",
        [{"name": "x", "contents": "hello"}],
        "no YAML of Kubernetes objects",
        "cluster.inlineManifests.0.contents",
    ),
    "firewall's default": document("NetworkDefaultActionConfig", ingress="accept"),
    "firewall's default deleted": document("NetworkDefaultActionConfig", **DELETE),
    "rule of the firewall deleted": document(
        "NetworkRuleConfig", at="name", says="the rule 'kubelet'", name="kubelet", **DELETE
    ),
    "rule of the firewall changed": document(
        "NetworkRuleConfig", at="name", says="the rule 'kubelet'", name="kubelet", ingress=[]
    ),
    "port for everybody": document(
        "NetworkRuleConfig", at="ingress.0.subnet", says="to everybody", name="own", ingress=[{"subnet": "0.0.0.0/0"}]
    ),
    "bond": document("BondConfig", name="bond0", links=["eno1"]),
    "bond deleted": document("BondConfig", name="bond0", **DELETE),
    "link": document("LinkConfig", name="eno1", mtu=1500),
    "VLAN": document("VLANConfig", name="bond0.30", vlanID=31),
    "DHCP": document("DHCPv4Config", name="eno1"),
    "DHCP over IPv6": document("DHCPv6Config", name="eno1"),
    "resolvers": document("ResolverConfig", nameservers=[{"address": "9.9.9.9"}]),
    "time servers": document("TimeSyncConfig", ntp={"servers": ["ntp.example"]}),
    "mirror": document("RegistryMirrorConfig", name="docker.io", endpoints=[{"url": "https://x.example"}]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_patch_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_mended(wrong)


RIGHT: dict[str, dict[str, Any]] = {
    "field without a key": {"machine": {"features": {"kubePrism": {"enabled": True}, "diskQuotaSupport": False}}},
    "flag without a key": {"machine": {"kubelet": {"extraArgs": {"v": "4"}}}},
    "document's field without a key": {
        "apiVersion": "v1alpha1",
        "kind": "ResolverConfig",
        "searchDomains": {"domains": ["site.example"]},
    },
    "document without a key": {"apiVersion": "v1alpha1", "kind": "OOMConfig", "sampleInterval": "1s"},
    "rule beside the platform's": {
        "apiVersion": "v1alpha1",
        "kind": "NetworkRuleConfig",
        "name": "monitoring",
        "portSelector": {"ports": [9400], "protocol": "tcp"},
        "ingress": [{"subnet": "10.5.0.0/24"}],
    },
    "manifest": {
        "cluster": {
            "inlineManifests": [
                {"name": "x", "contents": "apiVersion: v1\nkind: Namespace\nmetadata: {name: own}\n---\n"}
            ]
        }
    },
}


@pytest.mark.parametrize("patch", RIGHT.values(), ids=list(RIGHT))
def test_what_no_key_sets_is_free(patch: dict[str, Any]) -> None:
    level = f"{M}.roles.controlplane.patches.own" if "cluster" in patch else PATCH
    assert load_site(changed(prod(), {level: patch}), "site.yaml")
