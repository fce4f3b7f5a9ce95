"""What a site may set for a machine: its disk, links, volumes and settings. Keys are named as in `talos/`.

The same keys may be set for the cluster, a role and a node; the most specific place wins, key by key.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from floor.spec import Spec
from talos.documents.block import FilesystemType, SystemVolume, VolumeType
from talos.documents.network import AdSelect, BondMode, HashPolicy, LacpRate, VlanMode
from talos.documents.v1alpha1 import DiskType

# Of the largest servers: 32 processors of 28 cores, two threads each; 64 TiB is what 46 bits address.
MOST_CORES, MOST_MEMORY_GIB = 2048, 65_535
# After which a bond without a link has long failed.
_MOST_DELAY_MS = 600_000


class InstallDiskSpec(Spec):
    """Which disk Talos is installed on: a device, or a selector of which all that is given must match."""

    device: str | None = None
    """Path of one device, such as /dev/disk/by-id/nvme-...; with it, no selector."""
    size: str | None = None
    """Comparison such as `<= 2TB`."""
    name: str | None = None
    """Kernel name of the disk."""
    model: str | None = None
    """Model, with `*` for any text."""
    serial: str | None = None
    """Serial number."""
    uuid: str | None = None
    """UUID of the disk."""
    wwid: str | None = None
    """World-wide identifier."""
    type: DiskType | None = None
    """Kind of disk."""
    bus_path: str | None = None
    """Path on the bus, with `*` for any text."""


class RouteSpec(Spec):
    """A static route."""

    destination: str | None = None
    """Subnet that it leads to; without it, it is the default route."""
    gateway: str | None = None
    """Next hop."""
    source: str | None = None
    """Source address of what is sent over it."""
    metric: int | None = None
    """The route with the smallest metric is used."""
    mtu: int | None = None
    """Largest packet in bytes."""
    table: str | int | None = None
    """Routing table."""


class LinkSpec(Spec):
    """A link and what is on it."""

    up: bool | None = None
    """Whether it is switched on."""
    mtu: int | None = None
    """Largest packet in bytes."""
    node_address: bool = False
    """Puts the node's `address` here, with the prefix length of the network of `networks.nodes` that it lies in."""
    addresses: tuple[str, ...] = ()
    """Further addresses with their prefix length."""
    dhcp: bool = False
    """Asks for an address by DHCP; Talos does so by itself only where a machine has no link, bond or VLAN at all."""
    routes: tuple[RouteSpec, ...] = ()
    """Static routes."""
    multicast: bool | None = None
    """Whether it accepts multicast packets."""


class BondSpec(LinkSpec):
    """Several links as one."""

    links: tuple[str, ...] = ()
    """Names of its links."""
    bond_mode: BondMode | None = None
    """How its links share the traffic; required for every bond."""
    hardware_addr: str | None = None
    """MAC address of the bond."""
    miimon_ms: int | None = Field(default=None, ge=0, le=_MOST_DELAY_MS)
    """How often links are checked, in milliseconds."""
    updelay_ms: int | None = Field(default=None, ge=0, le=_MOST_DELAY_MS)
    """How long a link must be up before it is used, in milliseconds."""
    downdelay_ms: int | None = Field(default=None, ge=0, le=_MOST_DELAY_MS)
    """How long a link must be down before it is no longer used, in milliseconds."""
    xmit_hash_policy: HashPolicy | None = None
    """Which fields of a packet choose its link."""
    lacp_rate: LacpRate | None = None
    """How often LACP partners talk; 802.3ad alone."""
    ad_select: AdSelect | None = None
    """Which group of links is used; 802.3ad alone."""
    min_links: int | None = None
    """Links that must be up for the bond to be up."""


class VlanSpec(LinkSpec):
    """A VLAN on a link or bond."""

    vlan_id: int | None = None
    """1 to 4094; required for every VLAN."""
    parent: str | None = None
    """Link or bond that it is on; required for every VLAN."""
    vlan_mode: VlanMode | None = None
    """Kind of tag."""


class EthernetSpec(Spec):
    """Settings of a network card as ethtool has them."""

    features: dict[str, bool] = Field(default_factory=dict)
    """Feature switches."""
    rings: dict[str, int] = Field(default_factory=dict)
    """Ring sizes, such as rx and tx."""
    channels: dict[str, int] = Field(default_factory=dict)
    """Channel counts: rx, tx, other, combined."""


class EncryptionKeySpec(Spec):
    """One key of an encrypted volume."""

    kind: Literal["node_id", "tpm", "kms", "static"]
    """From the node's identity (against discarded disks), sealed by the TPM, by a KMS server, or a passphrase."""
    slot: int
    """0 to 31; each key has its own."""
    lock_to_state: bool | None = None
    """Binds the key to the STATE volume too."""
    endpoint: str | None = None
    """Address of the KMS server."""
    passphrase_secret: str | None = None
    """Key of the stack's configuration that holds the passphrase, set by `pulumi config set --secret`."""
    pcrs: tuple[int, ...] | None = None
    """Registers of the TPM; Talos chooses unless they are given."""


class ProvisioningSpec(Spec):
    """Where a volume is made and how large."""

    disk_selector: str | None = None
    """CEL over `disk` and `system_disk`."""
    grow: bool | None = None
    """Takes all room that there is."""
    min_size: str | None = None
    """Such as `100GiB`; the volume is not made on less."""
    max_size: str | None = None
    """Such as `3TB`, `80%`, or `-50GiB` to leave room."""


class SystemVolumeSpec(Spec):
    """A volume of the system itself."""

    provisioning: ProvisioningSpec | None = None
    """Place and size; STATE has Talos's own."""
    encryption: tuple[EncryptionKeySpec, ...] = ()
    """Keys of its LUKS2 encryption; none leaves it plain."""


class VolumeSpec(SystemVolumeSpec):
    """A volume of the site's own, mounted at /var/mnt/<name>; without a filesystem for `raw_volumes`."""

    volume_type: VolumeType | None = None
    """A partition, a whole disk, or a folder on EPHEMERAL."""
    filesystem: FilesystemType = "xfs"
    """Kind of filesystem."""


class MachineKeys(Spec):
    """Settings of all machines, of a role, and of one machine."""

    cores: int | None = Field(default=None, ge=1, le=MOST_CORES)
    """Threads of its processors, as Kubernetes counts them. With `memory_gib` of every machine that takes pods without
    GPUs, the proof shows whether the gateway, its pickers and controllers have room there."""
    memory_gib: int | None = Field(default=None, ge=1, le=MOST_MEMORY_GIB)
    """Memory of the machine."""
    install_disk: InstallDiskSpec | None = None
    """Disk that Talos is installed on; its content is lost."""
    extensions: tuple[str, ...] = ()
    """System extensions in addition to those of the role, such as `siderolabs/intel-ucode`."""
    kernel_args: tuple[str, ...] = ()
    """Kernel arguments in addition to those of the role, in this order."""
    link_aliases: dict[str, str] = Field(default_factory=dict)
    """Names of our own for links that a CEL expression over `link` picks. Models and storage use the node's
    own address alone; further links, bonds and VLANs are for your own pods, by host network or Multus."""
    links: dict[str, LinkSpec] = Field(default_factory=dict)
    """Physical links by kernel name or alias."""
    bonds: dict[str, BondSpec] = Field(default_factory=dict)
    """Bonds by name."""
    vlans: dict[str, VlanSpec] = Field(default_factory=dict)
    """VLANs by name, such as bond0.30."""
    ethernet: dict[str, EthernetSpec] = Field(default_factory=dict)
    """Settings of network cards by the name of their link."""
    static_hosts: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Lines of the hosts file: address to names."""
    system_volumes: dict[SystemVolume, SystemVolumeSpec] = Field(default_factory=dict)
    """Size and encryption of STATE, EPHEMERAL and IMAGECACHE."""
    volumes: dict[str, VolumeSpec] = Field(default_factory=dict)
    """Volumes with a filesystem."""
    raw_volumes: dict[str, VolumeSpec] = Field(default_factory=dict)
    """Partitions without a filesystem."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of the Kubernetes node."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations of the Kubernetes node."""
    taints: dict[str, str] = Field(default_factory=dict)
    """Taints of the Kubernetes node, `key: value:Effect`. A worker's kubelet registers the node with them; `up` changes
    those of a node that runs."""
    sysctls: dict[str, str] = Field(default_factory=dict)
    """Kernel settings."""
    sysfs: dict[str, str] = Field(default_factory=dict)
    """Files below /sys and what is written into them."""
    udev_rules: tuple[str, ...] = ()
    """Rules of udev."""
    kernel_modules: tuple[str, ...] = ()
    """Modules that are loaded in addition to those of the role."""
    mig: str | None = None
    """Layout that all GPUs of a machine of role hgx are cut by (MIG), such as `all-1g.18gb`; without it they are whole.
    `all-disabled` makes those whole again that were cut. Drain the machine before a change."""
    cert_sans: tuple[str, ...] = ()
    """Further names and addresses in the certificate of the machine's API."""
    kubelet_config: dict[str, Any] = Field(default_factory=dict)
    """Keys of the kubelet's own configuration, as it writes them."""
    patches: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Pieces of machine config, by a name for messages; merged as Talos does. In plain text: no secrets here."""


class NodeSpec(MachineKeys):
    """One machine; its key is its host name and the name of its Kubernetes node."""

    role: Literal["controlplane", "worker", "hgx"]
    """controlplane; hgx for 8 GPUs on NVSwitches; worker for a machine without GPUs."""
    address: str
    """Address of the machine, before and after it is installed."""
    schedulable: bool = False
    """Control planes: accepts pods as workers do."""
    fingerprint: str | None = None
    """The new machine's key as its console shows it; without it, `up` trusts the machine that answers there first."""
    replacement: int = Field(default=0, ge=0)
    """Increase it when other hardware replaces the machine: `up` removes the old one and installs this one."""
    dead: bool = False
    """The machine will never answer again: `up` removes it from etcd and Kubernetes. Then remove its key."""
