"""Sites for tests: the annotated one, and one that says every key of a machine."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stacks.facts import versions
from stacks.plan.cluster import ClusterPlan, plan_cluster
from stacks.plan.site_plan import SitePlan, plan_site
from stacks.site.loader import KEY
from stacks.site.machines import MachinesSpec
from tests.unit.talos import talos_examples as examples

ROOT = Path(__file__).parents[3]
REFERENCE: Mapping[str, Any] = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text())["config"][KEY]
# What gives its callers accounts. Most tests are of a site without them, and add what they are about.
ACCOUNTS = ("plans", "counters", "callers", "usage", "database", "portal")
OF_TENANTS = ("plan", "people", "model_limits")
PORTAL = "portal.oslo.site.example"

# Changes of it: every addon that it does not have, but those of GPUs that span nodes.
OTHER_ADDONS: dict[str, Any] = {
    "cluster.gpu_stack": "device_plugin",
    "cluster.machines.cni": "external",
    "addresses.announced_by": "metallb_l2",
    "secrets": {"system": "external_secrets", "store": {"existing": "own"}},
    "models.qwen3-32b.server.scaling": {"least": 2},
    "usage": {},
    "database": {
        "run_by": "cloudnative_pg",
        "backups": {"address": "https://s3.site.example/database", "keys_secret": "bucket"},
    },
    "monitoring.grafana": {"run_by": "platform", "admin_secret": "grafana-admin"},
    "logs": {"system": "victoria_logs"},
    "dns": {
        "system": "external_dns",
        "names": ["llm.site.example"],
        "rfc2136": {
            "nameserver": "10.5.0.2",
            "zones": ["site.example"],
            "tsig_key": "platform",
            "tsig_secret": "dns-tsig",
        },
    },
}
# Weights on each node's own disk.
ON_NODES: dict[str, Any] = {
    "storage.weights.place": "nodes",
    "storage.shared_read_bytes_per_s": None,
    "cluster.machines.roles.hgx.volumes": {
        "weights": {"provisioning": {"disk_selector": 'disk.serial == "W1"', "min_size": "3TB", "grow": True}}
    },
}


def reference() -> dict[str, Any]:
    """The annotated site, to be changed."""
    return copy.deepcopy(dict(REFERENCE))


def prod() -> dict[str, Any]:
    """The annotated site without accounts, to be changed: Envoy Gateway compares keys, and nothing counts."""
    site = {key: value for key, value in reference().items() if key not in ACCOUNTS}
    for tenant in site["tenants"].values():
        for key in OF_TENANTS:
            tenant.pop(key, None)
    site["certificates"]["names"].remove(PORTAL)
    return site


def text_without_accounts() -> str:
    """The file of `prod()`, with the comments of what is left."""
    text, tenants = (ROOT / "Pulumi.prod.yaml").read_text(), "    tenants:\n"
    head, _, tail = text.partition(tenants)
    for section in ACCOUNTS:
        head = re.sub(rf"^    {section}:\n(?:     .*\n|\n)*", "", head, flags=re.MULTILINE)
    keys = "|".join(OF_TENANTS)
    return (
        head.replace(f", {PORTAL}", "") + tenants + re.sub(rf"^        (?:{keys}): .*\n", "", tail, flags=re.MULTILINE)
    )


def prod_with_links() -> dict[str, Any]:
    """The annotated site with a VLAN, two rails and RDMA for pods of its own on the HGX nodes, to be changed."""
    site = prod()
    machines = site["cluster"]["machines"]
    machines["hgx"]["rdma"] = "roce"
    machines["roles"]["hgx"] |= {
        "vlans": {"bond0.30": {"parent": "bond0", "vlan_id": 30, "mtu": 9000}},
        "link_aliases": {
            "rail0": 'link.driver == "mlx5_core" && link.bus_path == "0000:18:00.0"',
            "rail1": 'link.driver == "mlx5_core" && link.bus_path == "0000:2a:00.0"',
        },
        "links": {"rail0": {"mtu": 9000}, "rail1": {"mtu": 9000}},
    }
    for number in range(1, 5):
        machines["nodes"][f"hgx-{number}"] |= {
            "vlans": {"bond0.30": {"addresses": [f"10.30.0.2{number}/24"]}},
            "links": {f"rail{rail}": {"addresses": [f"10.9.{rail}.2{number}/24"]} for rail in (0, 1)},
        }
    return site


def under_later_operator(plan: SitePlan) -> SitePlan:
    """The same site with NVIDIA's operator, in a version that no row of the compatibility table refuses to cut GPUs."""
    pins = versions.load()
    operator = pins.charts["gpu_operator"].model_copy(update={"version": "v99.0.0"})
    pins = pins.model_copy(update={"charts": pins.charts | {"gpu_operator": operator}})
    cluster = plan.site.cluster.model_copy(update={"gpu_stack": "operator"})
    return plan_site(plan.site.model_copy(update={"cluster": cluster}), pins)


def every_key() -> dict[str, Any]:
    """`cluster.machines` with every key that a machine may have, on one control plane and one HGX node."""
    pem, _ = examples.authority()
    return {
        "endpoint": "https://k8s.site.example:6443",
        "image_factory": "https://factory.site.example",
        "networks": {"nodes": ["10.5.0.0/24"], "pods": "10.64.0.0/16", "services": "10.80.0.0/16"},
        "cni": "external",
        "discovery": "https://discovery.site.example/",
        "api_server_sans": ["k8s.site.example"],
        "trusted_roots": {"site": pem},
        "registries": {
            "mirrors": {"docker.io": {"endpoints": ["https://mirror.site.example/hub"], "override_path": True}},
            "auth": {"mirror.site.example": {"identity_token_secret": "token"}},
            "tls": {"mirror.site.example": {"ca": pem}},
        },
        "administrators": {
            "issuer": "https://login.site.example",
            "viewers": ["a"],
            "operators": ["b"],
            "admins": ["c"],
        },
        "audit": {"webhook": "https://logs.site.example/audit"},
        "patches": {"tuning": {"machine": {"features": {"diskQuotaSupport": False}}}},
        "roles": {"controlplane": {"patches": {"etcd": {"cluster": {"etcd": {"extraArgs": {"metrics": "basic"}}}}}}},
        "hgx": {
            "modules": "proprietary",
            "fork": "lts",
            "storage": {"engine": "v2", "disks": {"data": {"selector": 'disk.serial == "A"', "min_size": "3TB"}}},
        },
        "firewall": {"admins": ["10.1.0.0/24"], "control_planes": ["10.5.0.0/28"], "load_balancer_ports": [80]},
        "nodes": {
            "cp-1": {"role": "controlplane", "address": "10.5.0.11", "install_disk": {"device": "/dev/sda"}},
            "hgx-1": {
                "role": "hgx",
                "address": "10.5.0.21",
                "install_disk": {"serial": "BOOT"},
                "kernel_args": ["console=ttyS1"],
                "link_aliases": {"rail0": "link.driver == 'mlx5_core'"},
                "links": {"rail0": {"mtu": 9000, "addresses": ["10.9.0.21/24"]}, "eno3": {"dhcp": True}},
                "bonds": {
                    "bond0": {"links": ["eno1", "eno2"], "bond_mode": "active-backup", "node_address": True},
                },
                "vlans": {"bond0.30": {"parent": "bond0", "vlan_id": 30, "addresses": ["10.30.0.21/24"]}},
                "ethernet": {"eno1": {"rings": {"rx": 8192}, "features": {"rx-gro-hw": False}}},
                "static_hosts": {"10.5.0.9": ["weights"]},
                "system_volumes": {
                    "STATE": {"encryption": [{"kind": "static", "slot": 0, "passphrase_secret": "passphrase"}]},
                    "EPHEMERAL": {
                        "provisioning": {"min_size": "100GiB"},
                        "encryption": [{"kind": "node_id", "slot": 0}],
                    },
                },
                "volumes": {
                    "scratch": {"provisioning": {"disk_selector": 'disk.serial == "B"', "min_size": "1TB"}},
                    "spool": {"volume_type": "directory"},
                },
                "raw_volumes": {"raw": {"provisioning": {"disk_selector": 'disk.serial == "C"', "min_size": "1TB"}}},
                "labels": {"topology.kubernetes.io/zone": "a"},
                "annotations": {"site.example/asset": "A-1"},
                "taints": {"site.example/new": "yes:NoSchedule"},
                "sysctls": {"vm.swappiness": "1"},
                "sysfs": {"kernel.mm.transparent_hugepage.enabled": "madvise"},
                "udev_rules": ['SUBSYSTEM=="net"'],
                "kernel_modules": ["br_netfilter"],
                "cert_sans": ["hgx-1.site.example"],
                "kubelet_config": {"maxPods": 64},
                "patches": {"asset": {"machine": {"nodeAnnotations": {"site.example/row": "a"}}}},
            },
        },
    }


def plan(machines: Mapping[str, Any]) -> ClusterPlan:
    """The plan of a `cluster.machines` section."""
    return plan_cluster("site", MachinesSpec.model_validate(machines), versions.load())


def configs(machines: Mapping[str, Any]) -> dict[str, str]:
    """Configs with fixed secrets, the site's own being `canary-<key>`."""
    made = plan(machines)
    return made.configs(examples.bundle(), {name: f"canary-{name}" for name in made.secret_names}, None)
