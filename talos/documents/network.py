"""Network documents: names of the host, links and their addresses, DHCP, the control plane's VIP, resolvers, time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from talos.documents import checks
from talos.documents.cel import condition
from talos.documents.document import Document, Part, Wire, checked, seconds, wired
from talos.documents.problems import ConfigProblem

BondMode = Literal["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]
HashPolicy = Literal["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4"]
LacpRate = Literal["slow", "fast"]
AdSelect = Literal["stable", "bandwidth", "count"]
VlanMode = Literal["802.1q", "802.1ad"]

# Rings that Talos 1.13 takes as a number; tx-push, rx-push and tcp-data-split are switches there.
_RINGS = ("rx", "rx-mini", "rx-jumbo", "tx", "rx-buf-len", "cqe-size", "tx-push-buf-len")
# Linux names every feature with a dash but these; ethtool's own short names, such as gro, it refuses.
_FEATURES_WITHOUT_DASH = ("highdma", "loopback")
_FEATURES = checks.expect(
    lambda features: all("-" in name or name in _FEATURES_WITHOUT_DASH for name in features),
    "the kernel's names, such as rx-gro-hw",
    fix="write names that `talosctl get ethernetstatus LINK -o yaml` lists, such as rx-gro in the place of gro",
)
_CHANNELS = ("rx", "tx", "other", "combined")
_MTU = checks.between(68, 65535, "bytes")
_MAC = checks.pattern(r"([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", "a MAC address such as 00:1a:2b:3c:4d:5e")


@dataclass(frozen=True, kw_only=True)
class HostnameConfig(Document):
    """The host's name: a given one, or `stable`, which Talos derives from the machine's identity."""

    kind: ClassVar[str] = "HostnameConfig"

    auto: Literal["stable", "off"] | None = None
    hostname: str | None = field(default=None, metadata=checked(checks.hostname))

    def disagreements(self) -> Iterator[ConfigProblem]:
        if (self.hostname is None) == (self.auto in (None, "off")):
            yield ConfigProblem(
                path=("hostname",),
                what="does not go with auto",
                got=f"hostname {self.hostname!r}, auto {self.auto!r}",
                allowed="a hostname, or auto: stable",
                fix="give one of the two",
            )


@dataclass(frozen=True, kw_only=True)
class LinkAddress(Part):
    """An address with its prefix length, `10.5.0.11/24`; `route_priority` is the metric of its own subnet's route."""

    address: str = field(metadata=checked(checks.cidr))
    route_priority: int | None = None


@dataclass(frozen=True, kw_only=True)
class Route(Part):
    """A static route; without `destination` it is the default route of the gateway's family."""

    destination: str | None = field(default=None, metadata=checked(checks.destination))
    gateway: str | None = field(default=None, metadata=checked(checks.ip_address))
    source: str | None = field(default=None, metadata=checked(checks.ip_address))
    metric: int | None = field(default=None, metadata=checked(checks.between(0, 2**32 - 1)))
    mtu: int | None = field(default=None, metadata=checked(_MTU))
    table: str | int | None = field(default=None, metadata=checked(checks.routing_table))

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.destination is None and self.gateway is None:
            yield ConfigProblem(path=("gateway",), what="is missing, and so is the destination", fix="give one or both")


@dataclass(frozen=True, kw_only=True)
class Link(Part):
    """What every kind of link can set. `mtu` is in bytes."""

    name: str = field(metadata=checked(checks.link_name))
    up: bool | None = None
    mtu: int | None = field(default=None, metadata=checked(_MTU))
    addresses: tuple[LinkAddress, ...] = ()
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

    links: tuple[str, ...] = field(metadata=checked(checks.both(checks.some("link"), checks.every(checks.link_name))))
    bond_mode: BondMode
    hardware_addr: str | None = field(default=None, metadata=checked(_MAC))
    miimon_ms: int | None = field(default=None, metadata=wired("miimon", check=checks.between(0)))
    updelay_ms: int | None = field(default=None, metadata=wired("updelay", check=checks.between(0)))
    downdelay_ms: int | None = field(default=None, metadata=wired("downdelay", check=checks.between(0)))
    xmit_hash_policy: HashPolicy | None = None
    lacp_rate: LacpRate | None = None
    ad_select: AdSelect | None = None
    min_links: int | None = None

    def disagreements(self) -> Iterator[ConfigProblem]:
        timers = ("miimon_ms", "updelay_ms", "downdelay_ms")
        missing = [name for name in timers if getattr(self, name) is None]
        if self.bond_mode == "802.3ad" and missing:
            yield ConfigProblem(
                path=(missing[0],),
                what=f"{' and '.join(missing)} must be given for an 802.3ad bond: the kernel would watch no link",
                allowed="milliseconds; the delays are multiples of miimon_ms",
                fix="give miimon_ms 100 and both delays 200, or what the switches ask for",
            )
        delays = {name: delay for name in timers[1:] if (delay := getattr(self, name))}
        if self.miimon_ms == 0 and (self.bond_mode == "802.3ad" or delays):
            yield ConfigProblem(
                path=("miimon_ms",),
                what="watches no link, so a dead one stays in use"
                + (f", and the kernel refuses {' and '.join(delays)}" if delays else ""),
                got="0",
                fix="write 100, or what the switches ask for",
            )
        for name, delay in delays.items():
            if self.miimon_ms and delay % self.miimon_ms:
                whole = delay // self.miimon_ms * self.miimon_ms
                yield ConfigProblem(
                    path=(name,),
                    what=f"is no multiple of miimon_ms, {self.miimon_ms}: the kernel would take {whole}",
                    got=str(delay),
                    fix=f"write {whole + self.miimon_ms}",
                )
        if self.lacp_rate is not None and self.bond_mode != "802.3ad":
            yield ConfigProblem(
                path=("lacp_rate",),
                what=f"means nothing to a bond of mode {self.bond_mode}",
                allowed="with mode 802.3ad alone",
                fix="leave it out, or choose mode 802.3ad",
            )
        if self.min_links is not None and self.min_links > len(self.links):
            yield ConfigProblem(
                path=("min_links",),
                what="is more than the bond has links",
                got=str(self.min_links),
                allowed=f"0 to {len(self.links)}",
                fix="name more links, or ask for fewer",
            )


@dataclass(frozen=True, kw_only=True)
class VLANConfig(Link, Document):
    """A VLAN on top of `parent`; `vlan_id` is 1 to 4094."""

    kind: ClassVar[str] = "VLANConfig"

    vlan_id: int = field(metadata=wired("vlanID", check=checks.between(1, 4094)))
    vlan_mode: VlanMode | None = None
    parent: str = field(metadata=checked(checks.link_name))


@dataclass(frozen=True, kw_only=True)
class LinkAliasConfig(Document):
    """A name for the link that a CEL expression picks, for instance by `link.permanent_addr`."""

    kind: ClassVar[str] = "LinkAliasConfig"

    name: str = field(metadata=checked(checks.link_name))
    match: str = field(metadata=wired("selector", lambda expression: {"match": expression}, condition("link")))


@dataclass(frozen=True, kw_only=True)
class EthernetConfig(Document):
    """Settings of a network card as ethtool has them: feature switches, ring sizes and channel counts."""

    kind: ClassVar[str] = "EthernetConfig"

    name: str = field(metadata=checked(checks.link_name))
    features: Mapping[str, bool] = field(default_factory=dict, metadata=checked(_FEATURES))
    rings: Mapping[str, int] = field(default_factory=dict, metadata=checked(checks.counts(_RINGS)))
    channels: Mapping[str, int] = field(default_factory=dict, metadata=checked(checks.counts(_CHANNELS)))


@dataclass(frozen=True, kw_only=True)
class _DHCP(Part):
    name: str = field(metadata=checked(checks.link_name))
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

    address: str = field(metadata=wired("name", check=checks.ip_address))
    link: str = field(metadata=checked(checks.link_name))


@dataclass(frozen=True, kw_only=True)
class StaticHostConfig(Document):
    """A line of the hosts file."""

    kind: ClassVar[str] = "StaticHostConfig"

    address: str = field(metadata=wired("name", check=checks.ip_address))
    hostnames: tuple[str, ...] = field(
        metadata=checked(checks.both(checks.some("hostname"), checks.every(checks.hostname)))
    )


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

    nameservers: tuple[str, ...] = field(
        default=(), metadata=wired("nameservers", _nameservers, checks.every(checks.ip_address))
    )
    search_domains: SearchDomains | None = None


@dataclass(frozen=True, kw_only=True)
class TimeSyncConfig(Document):
    """Where the time comes from: NTP servers, or PTP devices such as `/dev/ptp0`, not both.

    `boot_timeout_s` is how long boot waits for a first synchronisation.
    """

    kind: ClassVar[str] = "TimeSyncConfig"

    enabled: bool | None = None
    boot_timeout_s: float | None = field(
        default=None, metadata=wired("bootTimeout", seconds, checks.between(0, unit="seconds"))
    )
    ntp_servers: tuple[str, ...] = field(default=(), metadata=wired("ntp", lambda servers: {"servers": list(servers)}))
    ptp_devices: tuple[str, ...] = field(default=(), metadata=wired("ptp", lambda devices: {"devices": list(devices)}))

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.ntp_servers and self.ptp_devices:
            yield ConfigProblem(
                path=("ptp_devices",),
                what="stand beside ntp_servers",
                allowed="one of the two",
                fix="choose one source",
            )
