"""From the keys of one machine to documents and settings of `talos/`."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from floor.problems import Path
from stacks.site.machine import (
    BondSpec,
    EncryptionKeySpec,
    InstallDiskSpec,
    LinkSpec,
    MachineKeys,
    NodeSpec,
    ProvisioningSpec,
    SystemVolumeSpec,
    VlanSpec,
    VolumeSpec,
)
from stacks.site.machines import MachinesSpec
from stacks.site.reading.levels import joined
from talos.cluster import MachineSettings
from talos.documents import block, network
from talos.documents.document import Document
from talos.documents.problems import ConfigError, ConfigProblem
from talos.documents.v1alpha1 import Install, InstallDisk, KernelModule

# Values that the site keeps in the stack's encrypted configuration, by their key.
SecretTexts = Mapping[str, str]

# Keys of a link that Talos has in another form: with the node's address among them, as types of its own, as DHCP.
_OTHER_FORM = {"node_address", "addresses", "routes", "dhcp"}


def merged_keys(machines: MachinesSpec, node: NodeSpec) -> MachineKeys:
    """The keys of all machines, the node's role and the node: mappings key by key, else the last level's value."""
    merged: dict[str, Any] = {}
    for level in (machines, machines.roles.get(node.role, MachineKeys()), node):
        level_keys = level.model_dump(exclude_unset=True, include=set(MachineKeys.model_fields) - {"patches"})
        merged = joined(merged, level_keys)
    return MachineKeys.model_validate(merged)


def install(disk: InstallDiskSpec | None, image: str) -> Install:
    """Where and what Talos installs. ConfigError comes later, with all others, if no disk is set."""
    chosen = disk or InstallDiskSpec()
    selector = InstallDisk(**chosen.model_dump(exclude={"device"}))
    return Install(disk=chosen.device, disk_selector=selector if selector.wire() else None, image=image)


def settings(keys: MachineKeys) -> MachineSettings:
    """What the machine adds to its role's v1alpha1 document."""
    return MachineSettings(
        cert_sans=keys.cert_sans,
        sysctls=keys.sysctls,
        sysfs=keys.sysfs,
        udev_rules=keys.udev_rules,
        kernel_modules=tuple(KernelModule(name=name) for name in keys.kernel_modules),
        node_labels=keys.labels,
        node_annotations=keys.annotations,
        node_taints=keys.taints,
        kubelet_config=keys.kubelet_config,
    )


def network_documents(keys: MachineKeys, node: NodeSpec, subnets: Sequence[str]) -> Iterator[Document]:
    """Aliases, links, bonds, VLANs, DHCP and hosts of one machine; `subnets` are those of `networks.nodes`."""
    for alias, match in sorted(keys.link_aliases.items()):
        yield network.LinkAliasConfig(name=alias, match=match)
    for name, link in sorted(keys.links.items()):
        yield network.LinkConfig(**_link(name, link, node, subnets))
    for name, bond in sorted(keys.bonds.items()):
        yield _bond(name, bond, node, subnets)
    for name, vlan in sorted(keys.vlans.items()):
        yield _vlan(name, vlan, node, subnets)
    for name, link in sorted({**keys.links, **keys.bonds, **keys.vlans}.items()):
        if link.dhcp:
            yield network.DHCPv4Config(name=name)
    for name, card in sorted(keys.ethernet.items()):
        yield network.EthernetConfig(name=name, **card.model_dump())
    for address, hostnames in sorted(keys.static_hosts.items()):
        yield network.StaticHostConfig(address=address, hostnames=hostnames)


def _link(name: str, link: LinkSpec, node: NodeSpec, subnets: Sequence[str]) -> dict[str, Any]:
    """The fields of a link's document, and those of a bond's or a VLAN's; all but a few are called as the keys."""
    own = (_with_prefix(node.address, subnets),) if link.node_address else ()
    return {
        "name": name,
        **link.model_dump(exclude=_OTHER_FORM),
        "addresses": tuple(network.LinkAddress(address=address) for address in (*own, *link.addresses)),
        "routes": tuple(network.Route(**route.model_dump()) for route in link.routes),
    }


def _bond(name: str, bond: BondSpec, node: NodeSpec, subnets: Sequence[str]) -> network.BondConfig:
    if bond.bond_mode is None:
        raise _missing(("bonds", name, "bond_mode"), "set how the links share the work, such as 802.3ad")
    return network.BondConfig(**_link(name, bond, node, subnets))


def _vlan(name: str, vlan: VlanSpec, node: NodeSpec, subnets: Sequence[str]) -> network.VLANConfig:
    if vlan.vlan_id is None:
        raise _missing(("vlans", name, "vlan_id"), "set its number, 1 to 4094")
    if vlan.parent is None:
        raise _missing(("vlans", name, "parent"), "name the link or bond that it is on")
    return network.VLANConfig(**_link(name, vlan, node, subnets))


def _missing(path: Path, fix: str) -> ConfigError:
    return ConfigError.of([ConfigProblem(path=path, what="missing", fix=fix)])


def _with_prefix(address: str, subnets: Sequence[str]) -> str:
    for subnet in map(ipaddress.ip_network, subnets):
        if ipaddress.ip_address(address) in subnet:
            return f"{address}/{subnet.prefixlen}"
    return address


def volume_documents(keys: MachineKeys, secret_texts: SecretTexts) -> Iterator[Document]:
    """System volumes, volumes and raw volumes of one machine."""
    for system, spec in sorted(keys.system_volumes.items()):
        yield block.VolumeConfig(name=system, **_volume(spec, secret_texts))
    for name, volume in sorted(keys.volumes.items()):
        on_disk = volume.volume_type != "directory"
        yield block.UserVolumeConfig(
            name=name,
            volume_type=volume.volume_type,
            filesystem=block.Filesystem(type=volume.filesystem) if on_disk else None,
            **_volume(volume, secret_texts),
        )
    for name, volume in sorted(keys.raw_volumes.items()):
        made = _volume(volume, secret_texts)
        provisioning = made["provisioning"] or block.Provisioning()
        yield block.RawVolumeConfig(name=name, provisioning=provisioning, encryption=made["encryption"])


def _volume(spec: SystemVolumeSpec | VolumeSpec, secret_texts: SecretTexts) -> dict[str, Any]:
    return {
        "provisioning": _provisioning(spec.provisioning),
        "encryption": encryption(spec.encryption, secret_texts),
    }


def _provisioning(spec: ProvisioningSpec | None) -> block.Provisioning | None:
    return None if spec is None else block.Provisioning(**spec.model_dump())


def encryption(keys: Sequence[EncryptionKeySpec], secret_texts: SecretTexts) -> block.Encryption | None:
    """LUKS2 with these keys; None without any."""
    if not keys:
        return None
    return block.Encryption(keys=tuple(_encryption_key(key, secret_texts) for key in keys))


def _encryption_key(key: EncryptionKeySpec, secret_texts: SecretTexts) -> block.EncryptionKey:
    common = {"slot": key.slot, "lock_to_state": key.lock_to_state}
    match key.kind:
        case "node_id":
            return block.NodeIDKey(**common)  # type: ignore[arg-type]
        case "tpm":
            return block.TPMKey(pcrs=key.pcrs, **common)  # type: ignore[arg-type]
        case "kms":
            return block.KMSKey(endpoint=key.endpoint or "", **common)  # type: ignore[arg-type]
        case "static":
            # A site without one is refused at its key.
            passphrase = secret_texts[key.passphrase_secret] if key.passphrase_secret else ""
            return block.StaticKey(passphrase=passphrase, **common)  # type: ignore[arg-type]


def secret_names(keys: MachineKeys) -> set[str]:
    """Configuration keys that the machine's documents need."""
    volumes = (*keys.system_volumes.values(), *keys.volumes.values(), *keys.raw_volumes.values())
    return {key.passphrase_secret for volume in volumes for key in volume.encryption if key.passphrase_secret}
