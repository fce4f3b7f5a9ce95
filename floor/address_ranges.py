"""Ranges of IP addresses as people write them: a subnet, the first and the last address, or a single one."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, kw_only=True)
class AddressRange:
    """All addresses from the first to the last, both included."""

    first: IPAddress
    last: IPAddress

    def __contains__(self, address: IPAddress) -> bool:
        return address.version == self.first.version and int(self.first) <= int(address) <= int(self.last)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.first != self.last else str(self.first)

    def overlaps(self, other: AddressRange) -> bool:
        """Whether an address is in both."""
        return other.first in self or self.first in other


def read_ranges(texts: Iterable[str]) -> list[AddressRange]:
    """Those of the texts that are ranges."""
    return [block for block in map(read_range, texts) if block is not None]


def read_range(text: str) -> AddressRange | None:
    """The range, or None for a text that is none: `10.5.0.96/28`, `10.5.0.100-10.5.0.120` or `10.5.0.100`."""
    first, dash, last = text.partition("-")
    try:
        if not dash:
            network = ipaddress.ip_network(first)
            return AddressRange(first=network[0], last=network[-1])
        begin, end = ipaddress.ip_address(first), ipaddress.ip_address(last)
    except ValueError:
        return None
    return AddressRange(first=begin, last=end) if begin.version == end.version and int(begin) <= int(end) else None
