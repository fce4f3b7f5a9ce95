"""Machines, disks, patches and texts that read well and would fail on the rack: each is refused."""

from __future__ import annotations

import pytest

from tests.unit.stacks.wrong_sites import M, Wrong, refused_and_fixed

H = f"{M}.nodes.hgx-1"
PATCH = f"{M}.patches.own"
CP = "cluster.machines.roles.controlplane"
WRONG: dict[str, Wrong] = {
    # Machines
    "no place for the gateway": Wrong(
        {f"{M}.nodes.infra-1": None, f"{M}.nodes.infra-2": None},
        f"{M}.nodes",
        "no node takes pods that need no GPU",
        {f"{M}.nodes.cp-1.schedulable": True},
    ),
    "every worker tainted": Wrong(
        {f"{M}.roles.worker.taints": {"site.example/own": "yes:NoSchedule"}},
        f"{M}.nodes",
        "so do infra-1 (taint site.example/own), infra-2",
        {f"{M}.nodes.cp-1.schedulable": True},
    ),
    "all control planes dead": Wrong(
        {f"{M}.nodes.cp-{n}.dead": True for n in (1, 2, 3)},
        f"{M}.nodes",
        "every control plane is dead (cp-1, cp-2, cp-3)",
    ),
    "another's Cilium": Wrong(
        {f"{M}.cilium_owner": "program", f"{M}.cni": "external", "addresses": None},
        f"{M}.cilium_owner",
        "is program, and the program has no Cilium to change",
        {f"{M}.cni": "cilium"},
    ),
    # Disks
    "install disk among Longhorn's": Wrong(
        {f"{M}.roles.hgx.install_disk": {"type": "nvme"}},
        f"{M}.roles.hgx.install_disk",
        "also matches the disk of longhorn-0",
    ),
    "install disk by a model that is empty": Wrong(
        {f"{M}.roles.hgx.install_disk": {"model": ""}},
        f"{M}.roles.hgx.install_disk",
        "a text that is not empty",
    ),
    "secrets of no file": Wrong(
        {f"{M}.secrets_import": ""}, f"{M}.secrets_import", "not the path of a file", {f"{M}.secrets_import": "s.yaml"}
    ),
    "install disk by a glob of Longhorn's": Wrong(
        {f"{M}.roles.hgx.install_disk": {"bus_path": "/pci0000:3a/*"}},
        f"{M}.roles.hgx.install_disk",
        "Talos may be installed over it",
    ),
    "install disk of any size": Wrong(
        {f"{M}.roles.hgx.install_disk": {"size": ">= 1TB"}},
        f"{M}.roles.hgx.install_disk",
        "also matches",
        {f"{M}.roles.hgx.install_disk": {"size": "<= 1TB"}},
    ),
    "install disk among a volume's": Wrong(
        {
            f"{M}.roles.worker.install_disk": {"model": "SAMSUNG*"},
            f"{M}.roles.worker.volumes": {
                "scratch": {"provisioning": {"disk_selector": 'disk.model == "SAMSUNG MZQL2"', "min_size": "1TB"}}
            },
        },
        f"{M}.roles.worker.install_disk",
        "also matches the disk of scratch",
    ),
    "two Longhorn disks with one selector": Wrong(
        {f"{M}.hgx.storage.disks.longhorn-1.selector": 'disk.bus_path=="/pci0000:3a/0000:3a:00.0/nvme"'},
        f"{M}.hgx.storage.disks.longhorn-1.selector",
        "also the selector of longhorn-0",
    ),
    "a volume on Longhorn's disk": Wrong(
        {
            f"{M}.roles.hgx.raw_volumes": {
                "cache": {
                    "provisioning": {
                        "disk_selector": 'disk.bus_path == "/pci0000:3a/0000:3a:00.0/nvme"',
                        "min_size": "1TB",
                    }
                }
            }
        },
        f"{M}.roles.hgx.raw_volumes.cache.provisioning.disk_selector",
        "the disk of Longhorn's longhorn-0",
    ),
    "a raw volume of no disk": Wrong(
        {f"{M}.roles.hgx.raw_volumes": {"cache": {"provisioning": {"min_size": "1TB"}}}},
        f"{M}.roles.hgx.raw_volumes.cache.provisioning.disk_selector",
        "is missing (hgx-1, hgx-2, hgx-3, hgx-4)",
        {f"{M}.roles.hgx.raw_volumes.cache.provisioning.disk_selector": 'disk.serial == "C"'},
    ),
    # What one document is made of
    "a link's alias without CEL": Wrong(
        {f"{H}.link_aliases": {"net0": "mac = 1"}}, f"{H}.link_aliases.net0", "CEL compares with `==`"
    ),
    "a link with tiny packets": Wrong({f"{H}.links.eno9": {"mtu": 9}}, f"{H}.links.eno9.mtu", "does not fit; got 9"),
    "a ring that no card has": Wrong(
        {f"{H}.ethernet": {"eno9": {"rings": {"sideways": 5}}}}, f"{H}.ethernet.eno9.rings", "does not fit"
    ),
    "a host with a wrong name": Wrong(
        {f"{H}.static_hosts": {"10.5.0.30": ["a_b!"]}}, f"{H}.static_hosts.10.5.0.30", "does not fit"
    ),
    "a system volume without a size": Wrong(
        {f"{H}.system_volumes": {"EPHEMERAL": {"provisioning": {"min_size": "much"}}}},
        f"{H}.system_volumes.EPHEMERAL.provisioning.min_size",
        "does not fit; got 'much'",
    ),
    # Patches
    "patch of the type": Wrong(
        {PATCH: {"machine": {"type": "worker"}}}, f"{PATCH}.machine.type", "nodes.<name>.role decides"
    ),
    "patch of the pod network": Wrong(
        {PATCH: {"cluster": {"network": {"podSubnets": ["10.9.0.0/16"]}}}},
        f"{PATCH}.cluster.network.podSubnets",
        "networks.pods",
    ),
    "patch of the hostname": Wrong(
        {f"{M}.nodes.cp-1.patches.own": {"machine": {"network": {"hostname": "x"}}}},
        f"{M}.nodes.cp-1.patches.own.machine.network.hostname",
        "the node's own key",
    ),
    "patch of the hostname's document": Wrong(
        {PATCH: {"apiVersion": "v1alpha1", "kind": "HostnameConfig", "hostname": "x"}},
        f"{PATCH}.kind",
        "sets HostnameConfig",
    ),
    "patch of the installer": Wrong(
        {f"{CP}.patches.own": {"machine": {"install": {"image": "ghcr.io/siderolabs/installer:v1.13.9"}}}},
        f"{CP}.patches.own.machine.install.image",
        "image_factory and extensions",
    ),
    "patch of the secrets": Wrong(
        {PATCH: {"cluster": {"token": "x"}}}, f"{PATCH}.cluster.token", "looks like a secret in plain text"
    ),
    "patch of the endpoint": Wrong(
        {PATCH: {"cluster": {"controlPlane": {"endpoint": "https://x:6443"}}}},
        f"{PATCH}.cluster.controlPlane.endpoint",
        "endpoint decides",
    ),
    # Texts
    "rule of udev that udevd leaves out": Wrong(
        {f"{M}.udev_rules": ['SUBSYSTEM=="net", NAME="rail0"', "SUBSYSTEM=net"]},
        f"{M}.udev_rules.1",
        "not a rule that udevd reads",
        {f"{M}.udev_rules": ['SUBSYSTEM=="net", NAME="rail0"', 'SUBSYSTEM=="net"']},
    ),
    "rule of udev with a key that is none": Wrong(
        {f"{M}.udev_rules": ['SUBSYSTEMX=="net"']},
        f"{M}.udev_rules.0",
        'write it like SUBSYSTEM=="net", ',
        {f"{M}.udev_rules": ['# rails\nSUBSYSTEM=="net", \\\n  ATTR{address}=="00:11:22:33:44:55" NAME="rail0"']},
    ),
    "time server that is an address of a page": Wrong(
        {f"{M}.time_servers": ["http://ntp.example"]}, f"{M}.time_servers.0", "not a host name or an address"
    ),
    "sysctl that is none": Wrong(
        {f"{M}.sysctls": {"swappiness": "1"}},
        f"{M}.sysctls.swappiness",
        "names nothing below /proc/sys",
        {f"{M}.sysctls": {"vm.swappiness": "1"}},
    ),
    "sysctl without a value": Wrong(
        {f"{M}.sysctls": {"vm/swappiness": " "}}, f"{M}.sysctls.vm/swappiness", "has no value"
    ),
    "sysfs that is none": Wrong(
        {f"{M}.sysfs": {"transparent_hugepage": "x"}}, f"{M}.sysfs.transparent_hugepage", "below /sys"
    ),
    "extension without an owner": Wrong(
        {f"{M}.roles.worker.extensions": ["intel-ucode"]},
        f"{M}.roles.worker.extensions.0",
        "owner/name",
        {f"{M}.roles.worker.extensions": ["siderolabs/intel-ucode"]},
    ),
    "kernel arguments in one text": Wrong(
        {f"{M}.kernel_args": ["console=ttyS1 quiet"]},
        f"{M}.kernel_args.0",
        "one kernel argument",
        {f"{M}.kernel_args": ["console=ttyS1", "quiet"]},
    ),
    "PEM that is none": Wrong(
        {f"{M}.trusted_roots": {"site": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}},
        f"{M}.trusted_roots.site",
        "certificates in PEM form",
    ),
    "certificate of a registry that is a path": Wrong(
        {f"{M}.registries.tls": {"registry.site.example": {"ca": "/etc/ca.pem"}}},
        f"{M}.registries.tls.registry.site.example.ca",
        "certificates in PEM form",
    ),
    "mirror by an address of a page": Wrong(
        {f"{M}.registries.mirrors": {"https://docker": {"endpoints": ["https://registry.site.example"]}}},
        f"{M}.registries.mirrors.https://docker",
        "not the host of a registry",
        {f"{M}.registries.mirrors": {"docker.io": {"endpoints": ["https://registry.site.example"]}}},
    ),
    "fingerprint that is a word": Wrong(
        {f"{M}.nodes.hgx-1.fingerprint": "abc"}, f"{M}.nodes.hgx-1.fingerprint", "SHA-256"
    ),
    "discovery that is a word": Wrong(
        {f"{M}.discovery": "on"}, f"{M}.discovery", "off, public or", {f"{M}.discovery": "public"}
    ),
    "label of the GPU operator": Wrong(
        {f"{M}.nodes.hgx-1.labels": {"nvidia.com/gpu.family": "ampere"}},
        f"{M}.nodes.hgx-1.labels.nvidia.com/gpu.family",
        "GPU feature discovery",
    ),
    "API name that is an address of a page": Wrong(
        {f"{M}.api_server_sans": ["https://k8s"]}, f"{M}.api_server_sans.0", "a host name"
    ),
    "a kubeconfig without a name": Wrong(
        {"cluster": {"kubeconfig": " "}, "addresses": {}}, "cluster.kubeconfig", "the path of a file"
    ),
    "a drain in milliseconds": Wrong(
        {f"{M}.drain_timeout_s": 1_800_000},
        f"{M}.drain_timeout_s",
        "99999",
        {f"{M}.drain_timeout_s": 1800},
    ),
    "a watchdog in milliseconds": Wrong(
        {f"{M}.watchdog_s": 60_000},
        f"{M}.watchdog_s",
        "6553",
        {f"{M}.watchdog_s": 60},
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_a_wrong_site_is_refused_at_its_key_and_the_fix_mends_it(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
