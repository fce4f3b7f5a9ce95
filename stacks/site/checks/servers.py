"""Servers that machines ask, and where they cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from floor.problems import Path, Problem
from stacks.site.checks import firewall
from stacks.site.checks.subnets import inner, is_no_sender
from stacks.site.reading.levels import LEVELS, MACHINES, machines_of
from stacks.site.reading.raw import Address, address, at, host_of, items, mapping, matching

_CALLED = {
    "resolvers": "a DNS server",
    "time_servers": "a time server",
    "kernel_log": "the log server",
    "log_destination": "the log server",
}
_LOGS = ("kernel_log", "log_destination")
_TALOS_CLOCK = "time.cloudflare.com"


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Servers outside of the cluster: one with an address of pods or Services would not be reached by machines."""
    machines = mapping(at(values, *MACHINES))
    subnets = list(inner(mapping(machines.get("networks"))))
    for path, ip in _asked(machines):
        for name, subnet in subnets:
            if ip in subnet:
                yield Problem(
                    path=path,
                    what=f"lies in {subnet} of networks.{name}, so machines would look for it inside of the cluster",
                    got=str(ip),
                    fix=f"correct it, or give networks.{name} another subnet",
                )
        # The program asks the factory itself, which may be a tunnel of its machine.
        local = ip.is_loopback and path != (*MACHINES, "image_factory")
        if path != (*MACHINES, "endpoint") and (local or is_no_sender(ip)):
            yield Problem(path=path, what="is no address of a server", got=str(ip), fix="correct it")
        if ip.version == 6 and ip.is_link_local and not ip.scope_id:
            yield Problem(
                path=path,
                what="is link-local, and names no link to find it on",
                got=str(ip),
                fix=f"write {ip}%{_link(machines)}" if "resolvers" in path else "name an address that routers pass on",
            )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """A clock outside, where every image comes from a registry of the site: kubelet and etcd wait for the time.

    https://docs.siderolabs.com/talos/v1.13/configure-your-talos-cluster/system-configuration/time-sync
    """
    machines = mapping(at(values, *MACHINES))
    sealed = at(machines, "registries", "mirrors", "*", "skip_fallback") is True
    if sealed and not items(machines.get("time_servers")):
        yield Problem(
            path=(*MACHINES, "registries", "mirrors", "*", "skip_fallback"),
            what=f"keeps images inside of the site, and machines ask {_TALOS_CLOCK} for the time before they start",
            fix="name NTP servers of the site as time_servers, unless DHCP does or machines reach that one",
        )


def at_address(machines: Mapping[str, Any], ip: Address, role: str = "") -> str:
    """What server has this address, and so no machine can: nothing on a machine of the cluster answers like it.

    Machines need names and time before anything runs on them. Logs may go to a pod on the host's network, where the
    firewall lets them in.
    """
    for path, server in _asked(machines):
        key = path[len(MACHINES)]
        if server == ip and key in _CALLED and not (key in _LOGS and _is_let_in(machines, machines[key], role)):
            return f"{_CALLED[key]} ({key})"
    return ""


def _asked(machines: Mapping[str, Any]) -> Iterator[tuple[Path, Address]]:
    asked: list[tuple[Path, Any]] = [
        ((key, str(index)), text)
        for key in ("resolvers", "time_servers")
        for index, text in enumerate(items(machines.get(key)))
    ]
    asked += [((key,), host_of(machines.get(key))) for key in ("endpoint", "image_factory", *_LOGS)]
    for level in LEVELS:
        for kind in ("system_volumes", "volumes", "raw_volumes"):
            asked += [
                (path, host_of(text))
                for path, text in matching(machines, f"{level}{kind}.<name>.encryption.<name>.endpoint")
            ]
    for key, text in asked:
        ip = address(text)
        if ip is not None:
            yield (*MACHINES, *key), ip


def _is_let_in(machines: Mapping[str, Any], url: str, role: str) -> bool:
    rules = machines.get("firewall")
    if not isinstance(rules, Mapping):
        return True
    try:
        port = urlsplit(url).port or 0
    except ValueError:
        return True
    tcp = url.startswith("tcp:")
    open_ = any(firewall.opens(entry, port) for entry in items(rules.get("load_balancer_ports")))
    return tcp and role in {"worker", "hgx"} and open_


def _link(machines: Mapping[str, Any]) -> str:
    """The link of the nodes' addresses."""
    links = (name for machine in machines_of(machines) for _, name, link in machine.links() if link.get("node_address"))
    return next(links, "LINK")
