"""Plain values of a site as they were read: they may have any form, so nothing here raises."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def matching(values: Any, pattern: str) -> Iterator[tuple[Path, Any]]:
    """Every (path, value) that matches a dotted pattern with `<name>` for any key or index."""
    head, _, rest = pattern.partition(".")
    if isinstance(values, list) and head == "<name>":
        inner: list[tuple[str, Any]] = [(str(index), value) for index, value in enumerate(values)]
    elif isinstance(values, Mapping):
        inner = [(str(key), value) for key, value in values.items() if head in ("<name>", str(key))]
    else:
        return
    for key, value in inner:
        if not rest:
            yield (key,), value
        else:
            yield from (((key, *path), below) for path, below in matching(value, rest))


def at(values: Any, *keys: str) -> Any:
    """The value below these keys, or None."""
    for key in keys:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a section, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """The value if it is a list, or an empty one."""
    return list(value) if isinstance(value, list | tuple) else []


def number(value: Any) -> float | None:
    """The value if it is a number."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def address(value: Any) -> Address | None:
    """The value if it is an IP address, also one with its prefix length."""
    try:
        if isinstance(value, str):
            # An interface forgets the link of fe80::1%bond0.
            return ipaddress.ip_interface(value).ip if "/" in value else ipaddress.ip_address(value)
        return None
    except ValueError:
        return None


def network(value: Any) -> Network | None:
    """The value if it is a subnet."""
    try:
        return ipaddress.ip_network(value) if isinstance(value, str) else None
    except ValueError:
        return None


def interface(value: Any) -> Network | None:
    """The subnet of an address with its prefix length."""
    try:
        return ipaddress.ip_interface(value).network if isinstance(value, str) and "/" in value else None
    except ValueError:
        return None


def host_of(value: Any) -> str:
    """The host of `scheme://HOST:PORT` or of `HOST:PORT`, or nothing."""
    if not isinstance(value, str):
        return ""
    rest = value.partition("://")[2] or value
    host = rest.partition("/")[0].rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host
