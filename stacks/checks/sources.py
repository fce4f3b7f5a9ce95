"""Where machines and pods fetch things from: addresses at which none of them finds a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stacks.checks.subnets import inner
from stacks.loading.levels import MACHINES
from stacks.loading.problems import Problem, shown
from stacks.loading.raw import Address, Network, address, at, found, host_of, items, mapping

# Registries of the images that a machine needs before there is a cluster (Talos 1.13: kubelet, control plane).
_FIRST_IMAGES = ("*", "ghcr.io", "registry.k8s.io")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Sources that pods or machines cannot reach."""
    yield from _weights(values)
    yield from _registries(values)


def _weights(values: Mapping[str, Any]) -> Iterator[Problem]:
    mirror = at(values, "storage", "weights", "mirror")
    host = host_of(mirror)
    ip = address(host)
    if host == "localhost" or (ip is not None and (ip.is_loopback or ip.is_unspecified)):
        yield Problem(
            path=("storage", "weights", "mirror"),
            what="is each replica itself, which has no weights",
            got=shown(mirror),
            fix="name the server's host or address as pods reach it, such as https://hub.site.example",
        )


def _registries(values: Mapping[str, Any]) -> Iterator[Problem]:
    networks = mapping(at(values, *MACHINES, "networks"))
    apart = dict(inner(networks))
    for path, mirror in found(values, "cluster.machines.registries.mirrors.<name>"):
        endpoints = items(mapping(mirror).get("endpoints"))
        homes = [_home(address(host_of(each)), apart) for each in endpoints]
        # With a fallback the registry itself answers until the cluster does.
        if path[-1] in _FIRST_IMAGES and mapping(mirror).get("skip_fallback") is True and homes and all(homes):
            yield Problem(
                path=(*path, "endpoints", "0"),
                what=f"lies in {apart[homes[0]]} of networks.{homes[0]}, which begins with the cluster; machines "
                "need their first images before",
                got=shown(endpoints[0]),
                fix="name a registry outside of the cluster, or take skip_fallback out",
            )


def _home(ip: Address | None, apart: Mapping[str, Network]) -> str:
    """The network of pods or Services that has the address, or nothing."""
    return next((key for key, subnet in apart.items() if ip and ip in subnet), "")
