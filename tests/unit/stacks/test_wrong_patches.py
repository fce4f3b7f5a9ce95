"""Patches that set what a key of the site sets, or take away what the platform needs: each is refused."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.plan.site_plan import plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import M, Wrong, changed, refused_and_fixed

PATCH = f"{M}.patches.own"


def wrong(dotted: str, value: Any, what: str, key: str = "") -> Wrong:
    patch: Any = value
    for part in reversed(dotted.split(".")):
        patch = {part: patch}
    return Wrong({PATCH: patch}, f"{PATCH}.{key or dotted}", what, {PATCH: None})


def document(kind: str, *, at: str = "kind", says: str = "", **fields: Any) -> Wrong:
    patch = {"apiVersion": "v1alpha1", "kind": kind, **fields}
    return Wrong({PATCH: patch}, f"{PATCH}.{at}", says or kind, {PATCH: None})


DELETE = {"$patch": "delete"}
RULE = {"name": "own", "portSelector": {"ports": [9400], "protocol": "tcp"}, "ingress": [{"subnet": "10.5.0.0/24"}]}
FILE = {"path": "/var/own", "content": "x", "permissions": 420, "op": "create"}
ETCD = f"{M}.roles.controlplane.patches.own"


def argument(program: str, flag: str, value: Any, says: str, right: dict[str, Any]) -> Wrong:
    """A flag on control planes, and what it is there when its fix was followed."""
    arguments = {"cluster": {program: {"extraArgs": {flag: value}}}}
    fixed = {"cluster": {program: {"extraArgs": right}}} if right else None
    return Wrong({ETCD: arguments}, f"{ETCD}.cluster.{program}.extraArgs.{flag}", says, {ETCD: fixed})


def form(kind: str, at: str, says: str, wrong: dict[str, Any], right: dict[str, Any]) -> Wrong:
    """A document whose form Talos refuses, and that as Talos takes it."""
    patch = {"apiVersion": "v1alpha1", "kind": kind}
    return Wrong({PATCH: {**patch, **wrong}}, f"{PATCH}.{at}", says, {PATCH: {**patch, **right}})


def file(key: str, value: Any, says: str) -> Wrong:
    files = {"machine": {"files": [{**FILE, key: value}]}}
    return Wrong(
        {PATCH: files}, f"{PATCH}.machine.files.0.{key}", says, {f"{PATCH}.machine.files.0.{key}": FILE.get(key)}
    )


def rule(at: str, value: Any, says: str) -> Wrong:
    right = {"apiVersion": "v1alpha1", "kind": "NetworkRuleConfig", **RULE}
    before: Any = right
    for part in at.split("."):
        before = before[int(part)] if isinstance(before, list) else before[part]
    return Wrong({PATCH: right, f"{PATCH}.{at}": value}, f"{PATCH}.{at}", says, {f"{PATCH}.{at}": before})


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
    "no access of etcd's backups": Wrong(
        {f"{M}.roles.controlplane.patches.own.machine.features.kubernetesTalosAPIAccess.enabled": False},
        f"{M}.roles.controlplane.patches.own.machine.features.kubernetesTalosAPIAccess.enabled",
        "etcd_backup takes snapshots through it",
        {f"{M}.etcd_backup": None},
    ),
    "own Services": wrong("cluster.apiServer.extraArgs.service-cluster-ip-range", "10.9.0.0/16", "networks.services"),
    "own pods": wrong("cluster.controllerManager.extraArgs.cluster-cidr", "10.9.0.0/16", "networks.pods"),
    # Flags of the programs
    **{
        f"{program}'s {flag} with {value}": argument(program, flag, value, says, right)
        for program, flag, value, says, right in (
            ("apiServer", "audit-log-maxsise", "100", "write audit-log-maxsize", {"audit-log-maxsize": "100"}),
            ("apiServer", "insecure-port", "8080", "is no flag of the API server", {}),
            ("apiServer", "--v", "4", "write v", {"v": "4"}),
            (
                "apiServer",
                "max_requests_inflight",
                "800",
                "is written with underscores",
                {"max-requests-inflight": "800"},
            ),
            ("apiServer", "v", "high", "a whole number", {"v": "4"}),
            ("apiServer", "request-timeout", "60", "a time with its unit", {"request-timeout": "60s"}),
            ("apiServer", "profiling", "no", "true or false", {"profiling": "false"}),
            ("apiServer", "authorization-mode", "Node,AlwaysAllow", "let everybody do everything", {}),
            ("apiServer", "authorization-mode", ["Node", "AlwaysAllow"], "let everybody do everything", {}),
            ("apiServer", "etcd-servers", "https://10.9.0.1:2379", "is given by Talos alone", {}),
            ("apiServer", "etcd_servers", "https://10.9.0.1:2379", "take it out of the patch", {}),
            ("apiServer", "service_cluster_ip_range", "10.9.0.0/16", "fix: take it out of the patch", {}),
            ("apiServer", "feature-gates", "ImageVolumes=true", "names ImageVolumes", {}),
            ("apiServer", "feature-gates", "NodeSwap=false", "cannot be turned", {}),
            ("apiServer", "feature-gates", "HPAScaleToZero", "write HPAScaleToZero=true", {}),
            ("controllerManager", "node-monitor-graceperiod", "40s", "did you mean 'node-monitor-grace-period'?", {}),
            ("controllerManager", "root-ca-file", "/x", "is given by Talos alone", {}),
            ("scheduler", "policy-config-file", "/x", "is no flag of the scheduler", {}),
            ("scheduler", "config", "/x", "is given by Talos alone", {}),
            ("apiServer", "authorisation-mode", "RBAC", "write authorization-mode", {"authorization-mode": "RBAC"}),
            ("proxy", "ipvs-schedulers", "rr", "write ipvs-scheduler", {"ipvs-scheduler": "rr"}),
            ("etcd", "quota-backend-bytes", "8GiB", "a whole number", {"quota-backend-bytes": "8589934592"}),
            ("etcd", "quota-backend-byte", "1", "write quota-backend-bytes", {"quota-backend-bytes": "1"}),
            ("etcd", "data-dir", "/x", "is given by Talos alone", {}),
            ("etcd", "force-new-cluster", "true", "leave the other members out", {}),
            ("etcd", "feature-gates", "NodeSwap=true", "is no feature gate of etcd", {}),
        )
    },
    "kubelet's flag that is none": wrong("machine.kubelet.extraArgs.cloud-provder", "external", "write cloud-provider"),
    "kubelet's flag that is a field": wrong(
        "machine.kubelet.extraArgs.max-pods", "8", "and use kubelet_config.maxPods"
    ),
    "kubelet's flag with underscores": wrong(
        "machine.kubelet.extraArgs.authorization_mode", "AlwaysAllow", "which Talos decides"
    ),
    "kubelet's gates by a flag": wrong(
        "machine.kubelet.extraArgs.feature-gates", "NoSuchGate=true", "and use kubelet_config.featureGates"
    ),
    "etcd's address": Wrong(
        {ETCD: {"cluster": {"etcd": {"extraArgs": {"listen-client-urls": "http://0.0.0.0:2379"}}}}},
        f"{ETCD}.cluster.etcd.extraArgs.listen-client-urls",
        "networks.nodes",
        {ETCD: None},
    ),
    "etcd on workers": Wrong(
        {PATCH: {"cluster": {"etcd": {"extraArgs": {"quota-backend-bytes": "8589934592"}}}}},
        f"{PATCH}.cluster.etcd",
        "is for control planes alone, and Talos refuses the config of hgx-1 with it",
        {PATCH: None, ETCD: {"cluster": {"etcd": {"extraArgs": {"quota-backend-bytes": "8589934592"}}}}},
    ),
    "Talos's API for pods of a worker": Wrong(
        {f"{M}.nodes.infra-1.patches.own": {"machine": {"features": {"kubernetesTalosAPIAccess": {"enabled": True}}}}},
        f"{M}.nodes.infra-1.patches.own.machine.features.kubernetesTalosAPIAccess",
        "move the patch to roles.controlplane",
        {f"{M}.nodes.infra-1.patches.own": None},
    ),
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
        "NetworkRuleConfig",
        at="ingress.0.subnet",
        says="to everybody",
        **{**RULE, "ingress": [{"subnet": "0.0.0.0/0"}]},
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
    "labels": wrong("machine.nodeLabels", {"nvidia.com/gpu.family": "ampere"}, "use labels"),
    "image of the API server": wrong("cluster.apiServer.image", "registry.k8s.io/kube-apiserver:v1.20.0", "pinned"),
    "encryption in its old form": wrong("machine.systemDiskEncryption", {"state": {}}, "use system_volumes"),
    # What Talos's loader refuses
    "field that is none": wrong("machine.nope", 1, "is no field of Talos's machine config"),
    "field that is misspelt": Wrong(
        {PATCH: {"machine": {"featurs": {"diskQuotaSupport": False}}}},
        f"{PATCH}.machine.featurs",
        "did you mean 'features'?",
        {PATCH: {"machine": {"features": {"diskQuotaSupport": False}}}},
    ),
    "switch in quotes": wrong("machine.features.rbac", "true", "is not true or false"),
    "list that is a text": wrong("machine.certSANs", "x.example", "is not a list"),
    "section that is a list": wrong("machine.kubelet", [1], "is not a section"),
    "permissions in quotes": file("permissions", "0o644", "write 420 for 0o644"),
    "file that stops the boot": file("path", "/etc/own.conf", "outside of /var/"),
    "file that leaves /var": file("path", "/var/../etc/own.conf", "outside of /var/"),
    "operation that is none": file("op", "make", "allowed: one of create, append, overwrite"),
    "kind that is none": form(
        "OOMConfigs", "kind", "did you mean 'OOMConfig'?", {}, {"kind": "OOMConfig", "sampleInterval": "1s"}
    ),
    "kind of a later Talos": document("KubeletConfig", at="kind", says="is no kind of document", image="x"),
    "document of another API": Wrong(
        {PATCH: {"apiVersion": "v1", "kind": "OOMConfig", "sampleInterval": "1s"}},
        f"{PATCH}.apiVersion",
        "write v1alpha1",
        {f"{PATCH}.apiVersion": "v1alpha1"},
    ),
    "document's field that is none": form(
        "OOMConfig", "interval", "is no field", {"interval": "1s"}, {"sampleInterval": "1s"}
    ),
    "time in words": form(
        "OOMConfig", "sampleInterval", "a time with its unit", {"sampleInterval": "1 second"}, {"sampleInterval": "1s"}
    ),
    "time in days": form(
        "OOMConfig", "sampleInterval", "got '1d'", {"sampleInterval": "1d"}, {"sampleInterval": "24h"}
    ),
    "port in quotes": rule("portSelector.ports.0", "9400", "is not a port"),
    "protocol that is none": rule("portSelector.protocol", "http", "allowed: one of icmp, tcp, udp, icmpv6"),
    "subnet without its length": rule("ingress.0.subnet", "10.5.0.0", "is not a subnet"),
    "subnet with a mask": rule("ingress.0.subnet", "10.5.0.0/255.255.255.0", "is not a subnet"),
    "rule without a port": Wrong(
        {PATCH: {"apiVersion": "v1alpha1", "kind": "NetworkRuleConfig", **RULE, "portSelector": {"protocol": "tcp"}}},
        f"{PATCH}.portSelector.ports",
        "Talos takes no NetworkRuleConfig without it",
        {f"{PATCH}.portSelector.ports": [9400]},
    ),
    "service without a file": form(
        "ExtensionServiceConfig",
        "configFiles",
        "add configFiles or environment",
        {"name": "own"},
        {"name": "own", "environment": ["A=1"]},
    ),
    "share above all": form(
        "ZswapConfig", "maxPoolPercent", "from 0 to 100", {"maxPoolPercent": 200}, {"maxPoolPercent": 20}
    ),
    "variable with a dash": form(
        "EnvironmentConfig", "variables", "underscores", {"variables": {"A-B": "1"}}, {"variables": {"A_B": "1"}}
    ),
    "password of a proxy": form(
        "EnvironmentConfig",
        "variables.PROXY_AUTH",
        "looks like a secret in plain text",
        {"variables": {"PROXY_AUTH": "hunter2"}},
        {"variables": {"PROXY": "http://proxy.site.example"}},
    ),
    "default route by its subnet": form(
        "DummyLinkConfig",
        "routes.0.destination",
        "leave destination out: without it the route is the default one",
        {"name": "dummy0", "routes": [{"destination": "0.0.0.0/0", "gateway": "10.5.0.1"}]},
        {"name": "dummy0", "routes": [{"gateway": "10.5.0.1"}]},
    ),
    "routing table that is none": form(
        "VRFConfig", "table", "a routing table", {"name": "vrf0", "table": "nope"}, {"name": "vrf0", "table": 30}
    ),
    "hardware address with dashes": form(
        "BridgeConfig",
        "hardwareAddr",
        "00:1a:2b:3c:4d:5e",
        {"name": "br0", "hardwareAddr": "00-1a-2b-3c-4d-5e"},
        {"name": "br0", "hardwareAddr": "00:1a:2b:3c:4d:5e"},
    ),
    "size that no disk has": form(
        "SwapVolumeConfig",
        "provisioning.minSize",
        "is not a size",
        {"name": "swap", "provisioning": {"diskSelector": {"match": "system_disk"}, "minSize": "20EB"}},
        {"name": "swap", "provisioning": {"diskSelector": {"match": "system_disk"}, "minSize": "20gb"}},
    ),
    "rule of routing without a priority": form(
        "RoutingRuleConfig", "name", "from 1 to 32765", {"name": "x", "table": 30}, {"name": "1000", "table": 30}
    ),
    "probe of a host without its port": form(
        "TCPProbeConfig", "endpoint", "HOST:PORT", {"name": "a", "endpoint": "x"}, {"name": "a", "endpoint": "x:1"}
    ),
    "logs by HTTP": Wrong(
        {
            PATCH: {
                "machine": {"logging": {"destinations": [{"endpoint": "http://10.5.0.6:1", "format": "json_lines"}]}}
            }
        },
        f"{PATCH}.machine.logging.destinations.0.endpoint",
        "tcp://HOST:PORT",
        {f"{PATCH}.machine.logging.destinations.0.endpoint": "tcp://10.5.0.6:1"},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_patch_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)


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
    "flags of all programs": {
        "cluster": {
            "apiServer": {
                "extraArgs": {"feature-gates": ["kube:HPAScaleToZero=true", "AllAlpha=false"], "kubelet-port": "1"}
            },
            "controllerManager": {"extraArgs": {"node-monitor-grace-period": "40s", "controllers": "-ttl"}},
            "scheduler": {"extraArgs": {"v": 2, "leader-elect": True}},
            "etcd": {"extraArgs": {"feature-gates": "LeaseCheckpoint=true", "heartbeat-interval": "500"}},
        }
    },
    "modes of authorization": {"cluster": {"apiServer": {"extraArgs": {"authorization-mode": "Webhook"}}}},
    "switch whose name ends like a secret's": {"cluster": {"apiServer": {"extraArgs": {"anonymous-auth": "false"}}}},
    "document in two patches": {"apiVersion": "v1alpha1", "kind": "EnvironmentConfig", "variables": {"A": 1}},
    "file": {"machine": {"files": [FILE]}},
    "file of containerd": {"machine": {"files": [{**FILE, "path": "/etc/cri/conf.d/20-customization.part"}]}},
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
    assert plan_values(changed(prod(), {level: patch}), "site.yaml").site
