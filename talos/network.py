"""Network documents: names of the host, links and their addresses, DHCP, the control plane's VIP, resolvers, time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from talos.document import Document, Part, Wire, seconds, wired

BondMode = Literal["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]


@dataclass(frozen=True, kw_only=True)
class HostnameConfig(Document):
    """The host's name: a given one, or `stable`, which Talos derives from the machine's identity."""

    kind: ClassVar[str] = "HostnameConfig"

    auto: Literal["stable", "off"] | None = None
    hostname: str | None = None


@dataclass(frozen=True, kw_only=True)
class Address(Part):
    """An address with its prefix length, `10.5.0.11/24`; `route_priority` is the metric of its own subnet's route."""

    address: str
    route_priority: int | None = None


@dataclass(frozen=True, kw_only=True)
class Route(Part):
    """A static route; without `destination` it is the default route of the gateway's family."""

    destination: str | None = None
    gateway: str | None = None
    source: str | None = None
    metric: int | None = None
    mtu: int | None = None
    table: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class Link(Part):
    """What every kind of link can say. `mtu` is in bytes."""

    name: str
    up: bool | None = None
    mtu: int | None = None
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    multicast: bool | None = None


@dataclass(frozen=True, kw_only=True)
class LinkConfig(Link, Document):
    """A physical link, by its kernel name or by the alias of a LinkAliasConfig."""

    kind: ClassVar[str] = "LinkConfig"


@dataclass(frozen=True, kw_only=True)
class BondConfig(Link, Document):
    """Several links as one. `miimon_ms`, `updelay_ms` and `downdelay_ms` are in milliseconds."""

    kind: ClassVar[str] = "BondConfig"

    links: tuple[str, ...]
    bond_mode: BondMode
    hardware_addr: str | None = None
    miimon_ms: int | None = field(default=None, metadata=wired("miimon"))
    updelay_ms: int | None = field(default=None, metadata=wired("updelay"))
    downdelay_ms: int | None = field(default=None, metadata=wired("downdelay"))
    xmit_hash_policy: Literal["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"] | None = None
    lacp_rate: Literal["slow", "fast"] | None = None
    ad_select: Literal["stable", "bandwidth", "count"] | None = None
    min_links: int | None = None


@dataclass(frozen=True, kw_only=True)
class VLANConfig(Link, Document):
    """A VLAN on top of `parent`; `vlan_id` is 1 to 4094."""

    kind: ClassVar[str] = "VLANConfig"

    vlan_id: int = field(metadata=wired("vlanID"))
    vlan_mode: Literal["802.1q", "802.1ad"] | None = None
    parent: str


@dataclass(frozen=True, kw_only=True)
class LinkAliasConfig(Document):
    """A name for the link that a CEL expression picks, for instance by `link.permanent_addr`."""

    kind: ClassVar[str] = "LinkAliasConfig"

    name: str
    match: str = field(metadata=wired("selector", lambda expression: {"match": expression}))


@dataclass(frozen=True, kw_only=True)
class EthernetConfig(Document):
    """Settings of a network card as ethtool has them: feature switches, ring sizes and channel counts."""

    kind: ClassVar[str] = "EthernetConfig"

    name: str
    features: Mapping[str, bool] = field(default_factory=dict)
    rings: Mapping[str, int] = field(default_factory=dict)
    channels: Mapping[Literal["rx", "tx", "other", "combined"], int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _DHCP(Part):
    name: str
    route_metric: int | None = None
    ignore_hostname: bool | None = None
    client_identifier: Literal["none", "mac", "duid"] | None = None
    duid_raw: str | None = None


@dataclass(frozen=True, kw_only=True)
class DHCPv4Config(_DHCP, Document):
    """DHCP on the link `name`; any link document at all turns Talos's own default DHCP off."""

    kind: ClassVar[str] = "DHCPv4Config"


@dataclass(frozen=True, kw_only=True)
class DHCPv6Config(_DHCP, Document):
    """DHCPv6 on the link `name`."""

    kind: ClassVar[str] = "DHCPv6Config"


@dataclass(frozen=True, kw_only=True)
class Layer2VIPConfig(Document):
    """An address that one control plane at a time holds on `link`, by election through etcd."""

    kind: ClassVar[str] = "Layer2VIPConfig"

    address: str = field(metadata=wired("name"))
    link: str


@dataclass(frozen=True, kw_only=True)
class StaticHostConfig(Document):
    """A line of the hosts file."""

    kind: ClassVar[str] = "StaticHostConfig"

    address: str = field(metadata=wired("name"))
    hostnames: tuple[str, ...]


def _nameservers(addresses: tuple[str, ...]) -> list[Wire]:
    return [{"address": address} for address in addresses]


@dataclass(frozen=True, kw_only=True)
class SearchDomains(Part):
    domains: tuple[str, ...] = ()
    disable_default: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ResolverConfig(Document):
    """DNS servers, by address."""

    kind: ClassVar[str] = "ResolverConfig"

    nameservers: tuple[str, ...] = field(default=(), metadata=wired("nameservers", _nameservers))
    search_domains: SearchDomains | None = None


@dataclass(frozen=True, kw_only=True)
class TimeSyncConfig(Document):
    """Where the time comes from: NTP servers, or PTP devices such as `/dev/ptp0`, not both.

    `boot_timeout_s` is how long boot waits for a first synchronisation.
    """

    kind: ClassVar[str] = "TimeSyncConfig"

    enabled: bool | None = None
    boot_timeout_s: float | None = field(default=None, metadata=wired("bootTimeout", seconds))
    ntp_servers: tuple[str, ...] = field(default=(), metadata=wired("ntp", lambda servers: {"servers": list(servers)}))
    ptp_devices: tuple[str, ...] = field(default=(), metadata=wired("ptp", lambda devices: {"devices": list(devices)}))
