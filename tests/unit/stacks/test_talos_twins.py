"""What a site sets for machines is called and typed as in Talos's documents; each difference has its reason here."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from components.specs.administrators import AdministratorsSpec, AuditSpec
from components.specs.etcd_backup import EtcdBackupSpec
from floor.spec import Spec
from stacks.site import machine, machines
from talos import hgx, storage
from talos import machines as described
from talos.documents import block, network, registry, v1alpha1

pytestmark = pytest.mark.row("C.01", "000.11")

_NAME = "it is the key of the section"
_VOLUME = {
    "encryption": "a passphrase is in the stack's encrypted configuration, and the site names its key",
    "provisioning": "the same fields, merged key by key over the levels, which a frozen document cannot be",
}
_SECRET = "the value is in the stack's encrypted configuration, and the site names its key"
_UNUSED = "no site has asked for it, and patches reach it"


@dataclass(frozen=True, kw_only=True)
class Twins:
    """A section of a site and the type of Talos that is made of it, with what only one has, or has otherwise."""

    site: type[Spec]
    talos: type[Any]
    site_alone: Mapping[str, str] = field(default_factory=dict)
    talos_alone: Mapping[str, str] = field(default_factory=dict)
    other_type: Mapping[str, str] = field(default_factory=dict)


_LINK = Twins(
    site=machine.LinkSpec,
    talos=network.Link,
    site_alone={
        "node_address": "the address is written once, as the node's, and its prefix length once, in networks.nodes",
        "dhcp": "a document of its own",
    },
    talos_alone={"name": _NAME},
    other_type={
        "addresses": "a text with its prefix length; no site sets the metric of an address",
        "routes": "the same fields, and the schema of the site names its own type",
    },
)


def _link(site: type[Spec], talos: type[Any]) -> Twins:
    return Twins(
        site=site,
        talos=talos,
        site_alone=_LINK.site_alone,
        talos_alone=_LINK.talos_alone,
        other_type=_LINK.other_type,
    )


TWINS = (
    Twins(
        site=machine.InstallDiskSpec,
        talos=v1alpha1.InstallDisk,
        site_alone={"device": "`Install.disk`: one key holds both ways to name the disk"},
    ),
    Twins(site=machine.RouteSpec, talos=network.Route),
    _LINK,
    _link(machine.BondSpec, network.BondConfig),
    _link(machine.VlanSpec, network.VLANConfig),
    Twins(site=machine.EthernetSpec, talos=network.EthernetConfig, talos_alone={"name": _NAME}),
    Twins(site=machine.ProvisioningSpec, talos=block.Provisioning),
    Twins(
        site=machine.SystemVolumeSpec,
        talos=block.VolumeConfig,
        talos_alone={"name": _NAME, "mount_secure": _UNUSED},
        other_type=_VOLUME,
    ),
    Twins(
        site=machine.VolumeSpec,
        talos=block.UserVolumeConfig,
        talos_alone={"name": _NAME, "mount": _UNUSED},
        other_type={**_VOLUME, "filesystem": "its kind alone"},
    ),
    Twins(
        site=machines.LonghornDiskSpec,
        talos=storage.LonghornDisk,
        talos_alone={"name": _NAME},
        other_type={"encryption": _VOLUME["encryption"]},
    ),
    Twins(
        site=machines.LonghornStorageSpec,
        talos=storage.LonghornStorage,
        other_type={"disks": "by name, so that a site may write them in any order"},
    ),
    Twins(
        site=machines.HgxSpec,
        talos=hgx.HGXProfile,
        talos_alone={
            "extra_extensions": "a machine's own key",
            "sysctls": "a machine's own key",
            "node_labels": "labels, a machine's own key",
        },
        other_type={"storage": "disks by name"},
    ),
    Twins(
        site=machines.FirewallSpec,
        talos=described.Firewall,
        talos_alone={
            "nodes": "networks.nodes, which is for more than the firewall",
            "talos_api_pods": "follows from etcd_backup",
            "metrics_pods": "follows from monitoring.hosts",
            "pod_network_metrics": "follows from monitoring.pod_network",
        },
    ),
    Twins(
        site=machines.MirrorSpec,
        talos=registry.RegistryMirrorConfig,
        talos_alone={"name": _NAME},
        site_alone={"override_path": "one answer for all endpoints of a mirror"},
        other_type={"endpoints": "addresses alone"},
    ),
    Twins(
        site=machines.RegistryAuthSpec,
        talos=registry.RegistryAuthConfig,
        site_alone={"password_secret": _SECRET, "identity_token_secret": _SECRET},
        talos_alone={"name": _NAME, "password": _SECRET, "identity_token": _SECRET, "auth": "another form of the same"},
    ),
    Twins(
        site=machines.RegistryTlsSpec,
        talos=registry.RegistryTLSConfig,
        talos_alone={"name": _NAME, "client_identity": "its key is a secret, and no site has asked for it"},
    ),
)


def plain_type(hint: Any) -> Any:
    """A type without what a site's file adds: rules for a value, None for a key that is left out."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return plain_type(arguments[0])
    if origin in (Union, types.UnionType):
        options = {plain_type(argument) for argument in arguments if argument is not type(None)}
        return options.pop() if len(options) == 1 else frozenset(options)
    if origin in (dict, Mapping):
        return (Mapping, *map(plain_type, arguments))
    return hint


@pytest.mark.parametrize("twins", TWINS, ids=lambda twins: twins.site.__name__)
def test_a_key_is_called_and_typed_as_in_talos(twins: Twins) -> None:
    keys, parts = set(twins.site.model_fields), {part.name for part in fields(twins.talos)}
    assert keys - parts == set(twins.site_alone)
    assert parts - keys == set(twins.talos_alone)
    ours, theirs = get_type_hints(twins.site), get_type_hints(twins.talos)
    assert {key for key in keys & parts if plain_type(ours[key]) != plain_type(theirs[key])} == set(twins.other_type)


def test_each_section_of_a_machine_is_compared() -> None:
    compared = {twins.site for twins in TWINS}
    sections = {
        kind
        for module in (machine, machines)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Spec) and kind is not Spec
    }
    # Talos has one type for each kind of encryption key; the others are spread over several documents.
    spread = {machine.MachineKeys, machine.NodeSpec, machines.MachinesSpec, machines.NetworksSpec}
    # Parts of the platform, of which Talos knows a switch, or flags of the API server.
    parts = {EtcdBackupSpec, AdministratorsSpec, AuditSpec}
    assert sections - compared == {machine.EncryptionKeySpec, machines.RegistriesSpec} | parts | spread
