"""Example documents, secrets and configs for tests: one or more of every kind, the same bytes at every run."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from talos.cluster import MachineSettings, TalosCluster
from talos.cni import Cilium, Flannel
from talos.documents import block, firewall, network, registry, runtime
from talos.documents.document import Document
from talos.documents.v1alpha1 import Install, InstallDisk, LoggingDestination
from talos.hgx import HGXProfile
from talos.machine_config import MachineConfig
from talos.secrets import bundle as secrets
from talos.secrets.pki import Entropy, certificate_authority
from talos.storage import LonghornDisk, LonghornStorage

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
CANARY = "canary-5fd1b0"
INSTALLER = "factory.talos.dev/metal-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba:v1.13.9"
MANIFEST = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: cilium-secrets\n"


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    """One small key for a whole run: large ones take seconds to find."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def entropy(seed: int = 1, key: Callable[[], rsa.RSAPrivateKey] = rsa_key) -> Entropy:
    """The same octets at every run."""
    return Entropy(random.Random(seed).randbytes, key)  # noqa: S311 - tests want it predictable


@cache
def bundle() -> secrets.SecretsBundle:
    return secrets.generate(entropy(), lambda: NOW)


@cache
def authority() -> tuple[str, str]:
    """Certificate and key (PKCS#8), PEM, of a registry's CA."""
    source = entropy(2)
    key = source.ec_key()
    pair = certificate_authority(key, organization="Site", now=NOW, entropy=source)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pair.certificate, plain.decode()


def network_documents() -> tuple[Document, ...]:
    default = network.Route(gateway="10.5.0.1", metric=512)
    rail = network.Route(destination="10.9.0.0/16", gateway="10.9.1.1", source="10.9.1.11", mtu=9000, table="main")
    return (
        network.HostnameConfig(hostname="hgx-1", auto="off"),
        network.LinkAliasConfig(name="rail0", match='mac(link.permanent_addr) == "00:1a:2b:3c:4d:5e"'),
        network.EthernetConfig(
            name="rail0", rings={"rx": 8192, "tx": 8192}, channels={"combined": 32}, features={"rx-gro-hw": True}
        ),
        network.LinkConfig(
            name="rail0", up=True, mtu=9000, addresses=(network.LinkAddress(address="10.9.1.11/24"),), routes=(rail,)
        ),
        network.BondConfig(
            name="bond0",
            links=("enp1s0f0", "enp1s0f1"),
            bond_mode="802.3ad",
            miimon_ms=100,
            updelay_ms=200,
            downdelay_ms=200,
            xmit_hash_policy="layer3+4",
            lacp_rate="fast",
            ad_select="bandwidth",
            min_links=1,
            mtu=9000,
            addresses=(network.LinkAddress(address="10.5.0.11/24", route_priority=100),),
            routes=(default,),
        ),
        network.VLANConfig(
            name="bond0.30",
            vlan_id=30,
            vlan_mode="802.1q",
            parent="bond0",
            addresses=(network.LinkAddress(address="10.30.0.11/24"),),
        ),
        network.Layer2VIPConfig(address="10.5.0.10", link="bond0"),
        network.DHCPv4Config(name="enp9s0", route_metric=1024, ignore_hostname=True, client_identifier="mac"),
        network.DHCPv6Config(name="enp9s0", client_identifier="duid", duid_raw="00:01:00:01:23:45:67:89"),
        network.StaticHostConfig(address="10.5.0.5", hostnames=("registry.site.example", "registry")),
        network.ResolverConfig(
            nameservers=("10.5.0.2", "10.5.0.3"),
            search_domains=network.SearchDomains(domains=("site.example",), disable_default=True),
        ),
        network.TimeSyncConfig(enabled=True, boot_timeout_s=120, ntp_servers=("ntp1.site.example", "10.5.0.4")),
    )


def block_documents() -> tuple[Document, ...]:
    node_id = block.Encryption(keys=(block.NodeIDKey(slot=0),))
    every_key = block.Encryption(
        keys=(
            block.TPMKey(slot=0, pcrs=(7, 11), check_secure_boot_on_enroll=True, lock_to_state=True),
            block.KMSKey(slot=1, endpoint="https://kms.site.example:4050"),
            block.StaticKey(slot=2, passphrase=CANARY),
            block.NodeIDKey(slot=3),
        ),
        cipher="aes-xts-plain64",
        key_size=512,
        block_size=4096,
        options=("no_read_workqueue", "no_write_workqueue"),
    )
    nvme = block.Provisioning(disk_selector='disk.transport == "nvme" && !system_disk', min_size="3TB", grow=True)
    return (
        block.VolumeConfig(name="STATE", encryption=node_id),
        block.VolumeConfig(
            name="EPHEMERAL",
            provisioning=block.Provisioning(
                disk_selector="system_disk", grow=False, min_size="200GiB", max_size="500GiB"
            ),
            encryption=every_key,
            mount_secure=False,
        ),
        block.UserVolumeConfig(
            name="longhorn-0",
            volume_type="partition",
            provisioning=nvme,
            filesystem=block.Filesystem(type="xfs", project_quota_support=True),
            encryption=block.Encryption(keys=(block.TPMKey(slot=0),)),
            mount=block.Mount(disable_access_time=True, secure=False),
        ),
        block.UserVolumeConfig(
            name="whole-disk",
            volume_type="disk",
            provisioning=block.Provisioning(disk_selector='disk.serial == "S1" && disk.size > 3u * TB'),
        ),
        block.UserVolumeConfig(name="scratch", volume_type="directory"),
        block.RawVolumeConfig(name="longhorn-v2", provisioning=nvme, encryption=node_id),
        block.ExistingVolumeConfig(name="weights", volume_selector='volume.name == "xfs"', read_only=True),
    )


def runtime_documents() -> tuple[Document, ...]:
    return (
        runtime.WatchdogTimerConfig(timeout_s=60),
        runtime.KmsgLogConfig(name="site", url="tcp://logs.site.example:6051"),
        runtime.EventSinkConfig(endpoint="events.site.example:8080"),
        runtime.OOMConfig(
            trigger_expression='memory_full_avg10 > 75.0 && time_since_trigger > duration("10s")',
            strict_cgroup_class_ordering=True,
            sample_interval_s=0.1,
        ),
        runtime.EnvironmentConfig(variables={"HTTPS_PROXY": f"http://user:{CANARY}@proxy.site.example:3128"}),
        runtime.PCIDriverRebindConfig(address="0000:17:00.0", target_driver="vfio-pci"),
        runtime.ExtensionServiceConfig(
            name="lldpd",
            config_files=(runtime.ConfigFile(content=f"# {CANARY}\n", mount_path="/usr/local/etc/lldpd/lldpd.conf"),),
            environment=(f"TOKEN={CANARY}",),
        ),
    )


def registry_documents() -> tuple[Document, ...]:
    certificate, key = authority()
    mirror = registry.Endpoint(url="https://registry.site.example/v2/mirror", override_path=True)
    return (
        registry.RegistryMirrorConfig(name="docker.io", endpoints=(mirror,), skip_fallback=True),
        registry.RegistryMirrorConfig(name="*", endpoints=(registry.Endpoint(url="https://registry.site.example"),)),
        registry.RegistryAuthConfig(name="registry.site.example", username="talos", password=CANARY),
        registry.RegistryAuthConfig(name="token.site.example", identity_token=CANARY),
        registry.RegistryAuthConfig(name="auth.site.example", auth=CANARY),
        registry.RegistryTLSConfig(
            name="registry.site.example",
            ca=certificate,
            client_identity=registry.ClientIdentity(certificate=certificate, key=key),
        ),
        registry.RegistryTLSConfig(name="old.site.example", insecure_skip_verify=True),
        registry.TrustedRootsConfig(name="site", certificates=certificate),
        registry.ImageVerificationConfig(
            rules=(
                registry.ImageRule(image="registry.site.example/*", public_key=certificate),
                registry.ImageRule(
                    image="ghcr.io/siderolabs/*",
                    keyless=registry.Keyless(issuer="https://accounts.google.com", subject_regex="@siderolabs.com$"),
                ),
                registry.ImageRule(image="registry.k8s.io/*", skip=True),
                registry.ImageRule(image="*", deny=True),
            )
        ),
    )


def firewall_documents(role: firewall.Role = "worker") -> tuple[Document, ...]:
    return (
        *firewall.cluster_rules(
            role,
            admins=("10.1.0.0/24",),
            control_planes=("10.5.0.0/28",),
            nodes=("10.5.0.0/24",),
            cni="cilium",
            load_balancer_ports=(80, 443),
            clients=("10.0.0.0/8",),
        ),
        firewall.NetworkRuleConfig(
            name="node-ports",
            ports=("30000-32767",),
            protocol="udp",
            ingress=(firewall.Ingress(subnet="10.0.0.0/8", excluded="10.66.0.0/16"),),
        ),
    )


def all_documents() -> tuple[Document, ...]:
    return (
        *network_documents(),
        *block_documents(),
        *runtime_documents(),
        *registry_documents(),
        *firewall_documents(),
    )


def plain_cluster() -> TalosCluster:
    """What `talosctl gen config` would make of the same secrets."""
    return TalosCluster(
        name="plain",
        endpoint="https://10.5.0.10:6443",
        kubernetes_version="v1.36.3",
        secrets=bundle(),
        cni=Flannel(),
        discovery="public",
    )


def site_cluster() -> TalosCluster:
    """A site: Cilium, no discovery service, names for the API server."""
    return TalosCluster(
        name="site",
        endpoint="https://k8s.site.example:6443",
        kubernetes_version="v1.36.3",
        secrets=bundle(),
        cni=Cilium(manifest=MANIFEST),
        pod_subnets=("10.64.0.0/12",),
        service_subnets=("10.80.0.0/16",),
        api_server_sans=("k8s.site.example", "10.5.0.10"),
        etcd_subnets=("10.5.0.0/28",),
    )


def hgx_profile(engine: str = "v1") -> HGXProfile:
    disks = tuple(
        LonghornDisk(name=f"longhorn-{slot}", selector=f'disk.serial == "NVME{slot}"', min_size="3TB", tags=("nvme",))
        for slot in range(2)
    )
    storage = LonghornStorage(disks=disks, engine="v2" if engine == "v2" else "v1")
    return HGXProfile(rdma="roce", huge_pages_2mib=512, storage=storage, node_labels={"site.example/row": "a"})


def control_plane_config() -> MachineConfig:
    settings = MachineSettings(
        cert_sans=("10.5.0.10",),
        node_ip_subnets=("10.5.0.0/24",),
        logging=(LoggingDestination(endpoint="udp://logs.site.example:6050", extra_tags={"site": "prod"}),),
    )
    install = Install(disk_selector=InstallDisk(size="<= 2TB", type="nvme"), image=INSTALLER)
    documents = (site_cluster().control_plane(install, settings), *firewall_documents("controlplane"))
    return MachineConfig(documents=(*documents, network.HostnameConfig(hostname="cp-1")))


def hgx_config(profile: HGXProfile | None = None) -> MachineConfig:
    chosen = profile or hgx_profile()
    install = Install(disk="/dev/disk/by-id/nvme-boot", image=INSTALLER)
    worker = site_cluster().worker(install, chosen.settings(node_ip_subnets=("10.5.0.0/24",)))
    return MachineConfig(documents=(worker, *chosen.documents, network.HostnameConfig(hostname="hgx-1")))
