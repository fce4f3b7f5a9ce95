"""Pod networks: a namespace, an address out of the node's podCIDR and a link to the lab's bridge for each pod.

Pods have /32 addresses and send everything through the bridge's own address, so that answers to a ClusterIP pass
kube-proxy's translation on their way back as well.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Container
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from lab.cluster import processes
from lab.paths import Lab
from lab.runner.process import CommandError, check, run

NAMESPACE_FOLDER = Path("/run/netns")
# Longer than the kernel's first five attempts to send a segment again, which end after 0.2 + 0.4 + ... + 3.2 s.
_DELIVERY_S = 10.0
# FIN_WAIT1, LAST_ACK and CLOSING in the column `st`: closed, and not all acknowledged by the peer.
_UNDELIVERED = ["grep", "-qE", "^ *[0-9]+: [^ ]+ [^ ]+ (04|09|0B) ", "/proc/net/tcp", "/proc/net/tcp6"]


class AddressesExhaustedError(Exception):
    """A node's podCIDR has no free address left."""


class AddressPool:
    """Addresses of every node's podCIDR. Hands out the next one after the last, so that none is reused at once."""

    def __init__(self) -> None:
        self._used: dict[str, IPv4Address] = {}
        self._last: dict[IPv4Network, IPv4Address] = {}
        self._kept: set[IPv4Address] = set()

    def take(self, uid: str, cidr: str) -> str:
        """The address of the pod with this uid.

        Raises AddressesExhaustedError when the node has as many pods as addresses.
        """
        network = IPv4Network(cidr)
        taken = set(self._used.values())
        hosts = network.num_addresses - 2
        before = max((address for address in self._kept if address in network), default=network.network_address + 1)
        start = int(self._last.get(network, before))
        for step in range(1, hosts + 1):
            offset = (start - int(network.network_address) - 1 + step) % hosts
            candidate = network.network_address + 1 + offset
            # The first address is a node's gateway on many networks; nothing in the lab may come to rely on it.
            if candidate not in taken and offset > 0:
                self._used[uid] = candidate
                self._last[network] = candidate
                return str(candidate)
        raise AddressesExhaustedError(f"node's podCIDR {cidr} has no free address")

    def keep(self, uid: str, address: str) -> None:
        """The address of a pod that has one already; the pods of an earlier runner come before all others."""
        self._used[uid] = IPv4Address(address)
        self._kept.add(IPv4Address(address))

    def give_back(self, uid: str) -> None:
        self._used.pop(uid, None)


class PodNetworks:
    """Makes and removes the network namespaces of pods. Runs inside the lab's own namespace."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.addresses = AddressPool()

    def name(self, uid: str) -> str:
        return f"{self._lab.prefix}-p-{uid[:8]}"

    def enter_argv(self, uid: str) -> list[str]:
        """Prefix of a command that shall run in the pod's network."""
        return ["/usr/bin/nsenter", f"--net={NAMESPACE_FOLDER / self.name(uid)}", "--"]

    async def create(self, uid: str, address: str) -> None:
        """Make the pod's namespace with `lo`, `eth0` and a default route.

        Raises CommandError when the kernel or the bridge refuses.
        """
        name, bridge, gateway = self.name(uid), self._lab.bridge, self._lab.network.bridge_address
        await self.remove(uid)
        await check(["ip", "netns", "add", name])
        # Isolated: pods reach the bridge's own address alone, and no link-local address leads past the policies.
        outside = (
            f"link add {name} type veth peer name eth0 netns {name}\nlink set {name} master {bridge} up\n"
            f"link set {name} type bridge_slave isolated on\n"
        )
        await check(["ip", "-batch", "-"], stdin=outside)
        inside = (
            f"link set lo up\naddr add {address}/32 dev eth0\nlink set eth0 up\n"
            f"route add {gateway} dev eth0 scope link\nroute add default via {gateway} dev eth0\n"
        )
        await check(["ip", "-n", name, "-batch", "-"], stdin=inside)
        settings = (
            "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start;"
            "for f in all eth0; do echo 0 >/proc/sys/net/ipv4/conf/$f/accept_redirects; done"
        )
        await check([*self.enter_argv(uid), "/bin/sh", "-c", settings])

    async def until_delivered(self, uid: str) -> None:
        """Until peers have acknowledged all that the pod's programs sent before they ended; at most 10 s.

        The kernel sends for programs that have ended. What it has not sent goes with the namespace, and a client that
        misses the end of its connection waits for it. A pod in its node's network has nothing to wait for.
        """
        if not (NAMESPACE_FOLDER / self.name(uid)).exists():
            return
        deadline = time.monotonic() + _DELIVERY_S
        with suppress(TimeoutError):
            while (await run([*self.enter_argv(uid), *_UNDELIVERED])).code == 0 and time.monotonic() < deadline:
                await asyncio.sleep(0.05)

    async def remove(self, uid: str) -> None:
        """Remove the pod's namespace and link, if they are there, and free its address."""
        self.addresses.give_back(uid)
        await _remove_namespace(self.name(uid))

    async def sweep(self, kept: Container[str]) -> list[str]:
        """Remove namespaces, and links, of an earlier runner's pods but for these; the names of those removed."""
        prefix = f"{self._lab.prefix}-p-"
        listing = await run(["ip", "netns", "list"])
        names = [line.split()[0] for line in listing.output.splitlines() if line.startswith(prefix)]
        left = [name for name in names if name not in kept]
        for name in left:
            await _kill(name)
            await _remove_namespace(name)
        return left


async def _kill(namespace: str) -> None:
    """End the processes of a network namespace."""
    for _ in range(50):
        pids = processes.in_networks([NAMESPACE_FOLDER / namespace])
        if not pids:
            return
        processes.send(pids, signal.SIGKILL)
        await asyncio.sleep(0.1)


async def _remove_namespace(name: str) -> None:
    if not (NAMESPACE_FOLDER / name).exists():
        return
    # The link goes first: the kernel tears a namespace down later, and the next pod must not meet the old link.
    await run(["ip", "link", "delete", name])
    removed = await run(["ip", "netns", "delete", name])
    if removed.code != 0 and (NAMESPACE_FOLDER / name).exists():
        raise CommandError(f"cannot remove network namespace {name}: {removed.output.strip()}")
