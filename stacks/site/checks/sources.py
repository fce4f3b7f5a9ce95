"""Where machines and pods fetch things from: addresses at which none of them finds a server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, nearest, shown
from stacks.facts import catalogue, extensions, versions
from stacks.site.checks.forms import is_host
from stacks.site.checks.subnets import inner, is_no_sender
from stacks.site.reading.levels import LEVELS, MACHINES
from stacks.site.reading.raw import Address, Network, address, at, host_of, items, mapping, matching

# Registries of the images that a machine needs before there is a cluster (Talos 1.13: kubelet, control plane).
_INSIDE = re.compile(r"\.(svc|pod)\.$")
_HOST_PORT = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_LAST_PORT = 65535
_HUB_PATH = "/api/models"
# What an image factory has below its address, which is put behind it.
_OF_A_FACTORY = re.compile(r"/(schematics|pxe|(metal-)?installer|[0-9a-f]{64})(/|$)")
_FIRST_IMAGES = ("*", "ghcr.io", "registry.k8s.io")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Sources that pods or machines cannot reach."""
    yield from _weights(values)
    yield from _charts(values)
    yield from _registries(values)
    yield from _addresses(values)
    yield from _logins(values)
    yield from _extensions(values)
    yield from _hosts(values)


def _weights(values: Mapping[str, Any]) -> Iterator[Problem]:
    for path, example in (
        (("mirror",), "https://hub.site.example"),
        (("bucket", "address"), "https://s3.site.example/models"),
        (("oci", "address"), "https://registry.site.example/models"),
    ):
        key, server = ("storage", "weights", *path), at(values, "storage", "weights", *path)
        yield from _server_of_weights(values, key, server, example)
        if path[0] != "bucket" and isinstance(server, str):
            yield from _longer_than_meant(values, key, server.rstrip("/"))


def _longer_than_meant(values: Mapping[str, Any], path: Path, server: str) -> Iterator[Problem]:
    if path[-1] == "mirror" and server.endswith(_HUB_PATH):
        yield Problem(
            path=path,
            what=f"ends in {_HUB_PATH}, which clients add themselves",
            got=shown(server),
            fix=f"write {server.removesuffix(_HUB_PATH)}",
        )
    for name, model in mapping(values.get("models")).items():
        entry = mapping(model).get("catalogue")
        repository = catalogue.load(str(entry)).repository if entry in catalogue.names() else ""
        if repository and server.lower().endswith(f"/{repository.lower()}"):
            yield Problem(
                path=path,
                what=f"is the address of one repository, {name}'s; it is put before the repository of each model",
                got=shown(server),
                fix=f"write {server[: -len(repository) - 1]}",
            )


def _server_of_weights(values: Mapping[str, Any], path: Path, server: Any, example: str) -> Iterator[Problem]:
    host = host_of(server)
    ip = address(host)
    itself = host == "localhost" or host.endswith(".localhost")
    if itself or (ip is not None and (ip.is_loopback or ip.is_unspecified)):
        yield Problem(
            path=path,
            what="is each replica itself, which has no weights",
            got=shown(server),
            fix=f"name the server's host or address as pods reach it, such as {example}",
        )
    elif isinstance(server, str) and server.startswith(("http://", "https://")):
        yield from _server(path, server, example)
    domain = at(values, *MACHINES, "networks", "dns_domain")
    # Services and pods have names there, and the cluster's DNS has no server to ask for others.
    if isinstance(domain, str) and f".{host}".endswith(f".{domain}") and not _INSIDE.search(host.removesuffix(domain)):
        yield Problem(
            path=(*MACHINES, "networks", "dns_domain"),
            what=f"is also the domain of {host}, where replicas get weights: the cluster's DNS would answer that there "
            "is no such host",
            got=shown(domain),
            fix="choose a domain that is the cluster's alone, such as cluster.local",
        )


def _charts(values: Mapping[str, Any]) -> Iterator[Problem]:
    mirror = at(values, "charts", "mirror")
    if not isinstance(mirror, str):
        return
    scheme, _, rest = mirror.partition("://")
    last = mirror.rstrip("/").rpartition("/")[2]
    path = rest.partition("/")[2]
    # A folder's own name may have any letters.
    lower = mirror.removesuffix(path) + path.lower() if scheme == "oci" and path else mirror
    what, fix = "", lower.rstrip("/").rpartition("/")[0] or "."
    if (path or not rest) and (mirror.endswith(".tgz") or (scheme == "oci" and last in _charts_by_name())):
        what = "is one chart, and all are looked for there"
    elif path and last == "index.yaml":
        what = "is the list of a repository, which Helm looks for below its address"
    elif lower != mirror:
        what, fix = "is in no registry, whose names have no capital letters", lower
    if what:
        yield Problem(path=("charts", "mirror"), what=what, got=shown(mirror), fix=f"write {fix}")
    elif rest:
        yield from _server(("charts", "mirror"), mirror, f"{scheme}://charts.site.example")


def _charts_by_name() -> set[str]:
    """Names of the charts that are taken from there."""
    return {chart.chart.rpartition("/")[2] for chart in versions.load().charts.values()}


def _server(path: Path, url: str, example: str) -> Iterator[Problem]:
    """A host and a port that a server may have."""
    if not _HOST_PORT.fullmatch(_authority(url)):
        # Another form is reported at the section.
        return
    host, port = host_of(url), _authority(url).rpartition(":")[2]
    ip = address(host)
    what = ""
    if ip is not None and is_no_sender(ip):
        what, fix = "is no address of a server", "name the server's host or address"
    elif not is_host(host):
        what, fix = "names no host that there can be", "name the server's host or address"
    elif port.isdecimal() and ":" in _authority(url) and not 1 <= int(port) <= _LAST_PORT:
        what, fix = "names a port that there cannot be, allowed: from 1 to 65535", "correct the port, or leave it out"
    if what:
        yield Problem(path=path, what=what, got=shown(url), fix=f"{fix}, such as {example}")


def _registries(values: Mapping[str, Any]) -> Iterator[Problem]:
    networks = mapping(at(values, *MACHINES, "networks"))
    apart = dict(inner(networks))
    for path, mirror in matching(values, "cluster.machines.registries.mirrors.<name>"):
        endpoints = items(mapping(mirror).get("endpoints"))
        for index, endpoint in enumerate(endpoints):
            ip = address(host_of(endpoint))
            if ip is not None and is_no_sender(ip):
                yield Problem(
                    path=(*path, "endpoints", str(index)),
                    what="is no address of a server",
                    got=shown(endpoint),
                    fix="name the registry's host or address",
                )
        homes = [_home(address(host_of(endpoint)), apart) for endpoint in endpoints]
        # With a fallback the registry itself answers until the cluster does.
        if path[-1] in _FIRST_IMAGES and mapping(mirror).get("skip_fallback") is True and homes and all(homes):
            yield Problem(
                path=(*path, "endpoints", "0"),
                what=f"lies in {apart[homes[0]]} of networks.{homes[0]}, which begins with the cluster; machines "
                "need their first images before",
                got=shown(endpoints[0]),
                fix="name a registry outside of the cluster, or take skip_fallback out",
            )


def _addresses(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Addresses of mirrors and of the image factory that are more than a server's, and ports that there cannot be."""
    factory = (*MACHINES, "image_factory")
    named = [(factory, at(values, *factory))]
    named += matching(values, "cluster.machines.registries.mirrors.<name>.endpoints.<name>")
    for path, url in named:
        scheme, separated, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
        # Another scheme, credentials and a query are reported at the key by others.
        if scheme not in ("http", "https") or not separated or set(rest) & set("?#") or "@" in rest.partition("/")[0]:
            continue
        host, _, below = rest.partition("/")
        port, below = host.rpartition(":")[2], f"/{below}"
        what = ""
        if not _HOST_PORT.fullmatch(host) or (
            ":" in host and not host.endswith("]") and not 1 <= int(port) <= _LAST_PORT
        ):
            what = "is no address of one server: a host, and a port from 1 to 65535 at most"
        elif ":" in below or "@" in below or "//" in below:
            what = "names an image, or a second address, and is put before the name of every image"
        elif path == factory and (inside := _OF_A_FACTORY.search(below)):
            what = f"ends in {inside[0].rstrip('/')}, which is put behind it for each image"
        if what:
            yield Problem(
                path=path,
                what=what,
                got=shown(url),
                allowed="http(s)://HOST[:PORT][/PATH]",
                fix=f"write the server's address alone, such as {scheme}://"
                + (f"{host}" if is_host(host.partition(":")[0]) and "." in host else "registry.site.example"),
            )
    for kind in ("mirrors", "auth", "tls"):
        for path, _ in matching(values, f"cluster.machines.registries.{kind}.<name>"):
            port = path[-1].rpartition(":")[2]
            if ":" in path[-1] and port.isdecimal() and not 1 <= int(port) <= _LAST_PORT:
                yield Problem(
                    path=path,
                    what="names a port that there cannot be",
                    got=shown(path[-1]),
                    allowed="a port from 1 to 65535",
                    fix="correct the port, or leave it out",
                )


def _extensions(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Names that are nearly those of an extension; a factory of the site's own may have others."""
    talos = versions.load().talos
    for level in LEVELS:
        for path, name in matching(values, f"cluster.machines.{level}extensions.<name>"):
            if near := extensions.load().meant(name, talos) if isinstance(name, str) else "":
                yield Problem(
                    path=path,
                    what=f"is no extension of Talos {talos}",
                    got=shown(name),
                    near=near,
                    fix=f"write {near}",
                )


def _logins(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Credentials of a host that no machine asks, where mirrors alone are asked."""
    mirrors = mapping(at(values, *MACHINES, "registries", "mirrors"))
    if mapping(mirrors.get("*")).get("skip_fallback") is not True:
        return
    hosts = {
        _authority(endpoint) for mirror in mirrors.values() for endpoint in items(mapping(mirror).get("endpoints"))
    }
    hosts |= {str(name) for name, mirror in mirrors.items() if mapping(mirror).get("skip_fallback") is not True}
    for path, _ in matching(values, "cluster.machines.registries.auth.<name>"):
        if path[-1] not in hosts and path[-1].removesuffix(":443") not in hosts:
            # One that is like none does no harm, and may wait for its mirror.
            near = nearest(path[-1], sorted(hosts))
            if near:
                yield Problem(
                    path=path,
                    what="is no host that machines ask: every image comes from the mirrors",
                    allowed=", ".join(sorted(hosts)),
                    near=near,
                    fix=f"write {near}",
                )


def _authority(endpoint: Any) -> str:
    """HOST:PORT of an address, or HOST."""
    text = endpoint if isinstance(endpoint, str) else ""
    return (text.partition("://")[2] or text).partition("/")[0].rpartition("@")[2]


def _hosts(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Names that would lead each machine to itself."""
    for level in LEVELS:
        for path, names in matching(values, f"cluster.machines.{level}static_hosts.<name>"):
            ip = address(path[-1])
            others = [str(name) for name in items(names) if not str(name).startswith("localhost")]
            if ip is not None and ip.is_loopback and others:
                yield Problem(
                    path=path,
                    what=f"leads each machine that asks for {', '.join(others)} to itself",
                    fix="write the address of the server, or take it out",
                )


def _home(ip: Address | None, apart: Mapping[str, Network]) -> str:
    """The network of pods or Services that has the address, or nothing."""
    return next((key for key, subnet in apart.items() if ip and ip in subnet), "")
