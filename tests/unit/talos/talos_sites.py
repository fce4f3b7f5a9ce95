"""A whole site as an example: three control planes with a VIP, four HGX nodes with bonds, rails, VLANs, mirrors."""

from __future__ import annotations

from dataclasses import replace

from talos.cluster import MachineSettings
from talos.documents import block, network, registry, runtime
from talos.documents.patches import parse_patch
from talos.documents.v1alpha1 import Install, InstallDisk
from talos.machines import ClusterDescription, Firewall, NodeDescription
from tests.unit.talos import talos_examples as examples

VIP = "10.5.0.10"


def control_plane(number: int) -> NodeDescription:
    return NodeDescription(
        name=f"cp-{number}",
        role="controlplane",
        install=Install(disk_selector=InstallDisk(type="nvme", size="<= 2TB"), image=examples.INSTALLER),
        network=(*bond(f"10.5.0.{number}/24"), network.Layer2VIPConfig(address=VIP, link="bond0")),
    )


def hgx(number: int) -> NodeDescription:
    rails = (
        document
        for rail in range(2)
        for document in (
            network.LinkAliasConfig(
                name=f"rail{rail}", match=f"link.driver == 'mlx5_core' && link.bus_path == '0000:1{rail}:00.0'"
            ),
            network.LinkConfig(
                name=f"rail{rail}", mtu=9000, addresses=(network.LinkAddress(address=f"10.9.{rail}.{number}/24"),)
            ),
        )
    )
    storage = network.VLANConfig(
        name="bond0.30",
        vlan_id=30,
        parent="bond0",
        addresses=(network.LinkAddress(address=f"10.30.0.{number}/24"),),
    )
    return NodeDescription(
        name=f"hgx-{number}",
        role="worker",
        install=Install(disk="/dev/disk/by-id/nvme-boot", image=examples.INSTALLER),
        network=(*bond(f"10.5.0.{20 + number}/24"), storage, *rails),
        profile=examples.hgx_profile(),
        settings=MachineSettings(node_labels={"topology.kubernetes.io/zone": f"row-{number % 2}"}),
        patches=(parse_patch("asset", "node", f"machine: {{nodeAnnotations: {{site.example/asset: A-{number}}}}}"),),
    )


def bond(address: str) -> tuple[network.BondConfig, ...]:
    return (
        network.BondConfig(
            name="bond0",
            links=("enp1s0f0", "enp1s0f1"),
            bond_mode="802.3ad",
            lacp_rate="fast",
            miimon_ms=100,
            updelay_ms=200,
            downdelay_ms=200,
            addresses=(network.LinkAddress(address=address),),
            routes=(network.Route(gateway="10.5.0.1"),),
        ),
    )


def reference_site() -> ClusterDescription:
    certificate, _ = examples.authority()
    mirror = registry.Endpoint(url="https://registry.site.example")
    return ClusterDescription(
        cluster=replace(examples.site_cluster(), endpoint=f"https://{VIP}:6443"),
        talos_version="v1.13.9",
        nodes=(*map(control_plane, (1, 2, 3)), *map(hgx, (1, 2, 3, 4))),
        node_subnets=("10.5.0.0/24", f"!{VIP}/32"),
        documents=(
            network.ResolverConfig(nameservers=("10.5.0.2", "10.5.0.3")),
            network.TimeSyncConfig(ntp_servers=("10.5.0.4",)),
            runtime.WatchdogTimerConfig(timeout_s=60),
            runtime.KmsgLogConfig(name="site", url="tcp://10.5.0.6:6051"),
            registry.RegistryMirrorConfig(name="*", endpoints=(mirror,), skip_fallback=True),
            registry.RegistryAuthConfig(name="registry.site.example", username="talos", password=examples.CANARY),
            registry.RegistryTLSConfig(name="registry.site.example", ca=certificate),
            registry.TrustedRootsConfig(name="site", certificates=certificate),
            block.VolumeConfig(name="STATE", encryption=block.Encryption(keys=(block.TPMKey(slot=0),))),
        ),
        role_documents={"worker": (network.StaticHostConfig(address="10.5.0.9", hostnames=("weights",)),)},
        settings=MachineSettings(sysctls={"vm.swappiness": "1"}),
        role_settings={"controlplane": MachineSettings(cert_sans=(VIP,))},
        patches=(parse_patch("tuning", "cluster", "machine: {sysctls: {net.core.somaxconn: '4096'}}"),),
        role_patches={
            "controlplane": (parse_patch("metrics", "role", "cluster: {etcd: {extraArgs: {metrics: extensive}}}"),)
        },
        firewall=Firewall(
            admins=("10.1.0.0/24",),
            control_planes=("10.5.0.0/28",),
            nodes=("10.5.0.0/24",),
            clients=("10.0.0.0/8",),
            load_balancer_ports=(80, 443),
        ),
    )
