"""Sites of one project beside each other: two that name the same thing would take it from one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from floor.address_ranges import AddressRange, read_range
from floor.problems import Path, Problem, shown
from floor.reading.document import YamlDocument, read
from floor.reading.files import UnreadableError, text_of
from floor.spec import is_plain_name
from stacks.site.machines import MachinesSpec
from stacks.site.reading.raw import address, at, items, mapping

Claim = tuple[str, str]
"""What only one site can have: kind and value."""

_PREFIX, _SUFFIX = "Pulumi.", ".yaml"
_NODES = ("cluster", "machines", "nodes")
_MANIFEST = ("cluster", "machines", "cilium_manifest")
_MOST = 4
_FIX = "change it here or there; a copied site needs a name, machines and addresses of its own"


def problems(file: FilePath, values: Mapping[str, Any], key: str) -> Iterator[Problem]:
    """What the stack file `file` shares with others of its folder, and a name that is not the file's."""
    if not _is_stack(file.name):
        return
    name, stack = values.get("name"), _stack(file.name)
    if isinstance(name, str) and name != stack:
        renamed = file.parent / f"{_PREFIX}{name}{_SUFFIX}"
        free = is_plain_name(name) and not renamed.exists()
        yield Problem(
            path=("name",),
            what=f"is not the name of the file, {stack}, which is the stack's",
            got=shown(name),
            allowed=stack,
            fix=f"write {stack}" + (f", or rename the file to {renamed.name}" if free else ""),
        )
    own, pools, manifest = dict(_claims(values)), [*_pools(values)], _manifest(values)
    for other in sorted(file.parent.glob(f"{_PREFIX}*{_SUFFIX}")):
        if other.name == file.name or not _is_stack(other.name):
            continue
        try:
            site = _site(text_of(other), key)
        except (OSError, UnreadableError):
            continue
        # A copy that still has the other name is reported at the copy alone.
        if site.name != _stack(other.name):
            continue
        yield from _announced_twice(pools, site, other)
        yield from _another_cilium(manifest, site, other)
        if site.named.isdisjoint(own):
            continue
        shared = [(claim, path) for claim, path in site.claims if claim in own]
        nodes = [(claim, path) for claim, path in shared if own[claim][:-2] == path[:-2] == _NODES]
        for claim, path in shared if len(nodes) == 1 else [claimed for claimed in shared if claimed not in nodes]:
            line = site.document.line(path)
            where = f"{other.name}:{line}" if line else other.name
            yield Problem(path=own[claim], what=f"{claim[1]} is also that of {'.'.join(path)} ({where})", fix=_FIX)
        if len(nodes) > 1:
            names = ", ".join(own[claim][-2] for claim, _ in nodes[:_MOST])
            more = f" and {len(nodes) - _MOST} more" if len(nodes) > _MOST else ""
            where = f"{other.name}:{site.document.line(_NODES)}"
            what = f"{len(nodes)} machines have addresses of machines of {where}: {names}{more}"
            yield Problem(path=_NODES, what=what, fix=_FIX)


@dataclass(frozen=True, kw_only=True)
class _Site:
    """What others have to know of a site."""

    document: YamlDocument
    name: object
    claims: list[tuple[Claim, Path]]
    pools: list[tuple[AddressRange, Path]]
    manifest: tuple[str, str] | None
    named: frozenset[Claim]


@lru_cache(maxsize=1024)
def _site(text: str, key: str) -> _Site:
    """The site in a file's text. Each of a hundred sites looks at all the others."""
    document = read(text).section("config", key)
    claims, pools = [*_claims(mapping(document.values))], [*_pools(mapping(document.values))]
    named = frozenset(claim for claim, _ in claims)
    manifest = _manifest(mapping(document.values))
    name = at(document.values, "name")
    return _Site(document=document, name=name, claims=claims, pools=pools, manifest=manifest, named=named)


def _is_stack(name: str) -> bool:
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX) and name != "Pulumi.yaml"


def _stack(name: str) -> str:
    return name.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def _claims(values: Mapping[str, Any]) -> Iterator[tuple[Claim, Path]]:
    """What only one site can have, as (kind, value), and the key of this site that names it."""
    kubeconfig = at(values, "cluster", "kubeconfig")
    if isinstance(kubeconfig, str):
        yield ("kubeconfig", kubeconfig), ("cluster", "kubeconfig")
    machines = mapping(at(values, "cluster", "machines"))
    above = ("cluster", "machines")
    if isinstance(machines.get("endpoint"), str):
        yield ("endpoint", machines["endpoint"].rstrip("/")), (*above, "endpoint")
    vip = address(at(machines, "networks", "vip"))
    if vip is not None:
        yield ("address", str(vip)), (*above, "networks", "vip")
    for name, node in mapping(machines.get("nodes")).items():
        ip = address(at(node, "address"))
        if ip is not None:
            yield ("address", str(ip)), (*above, "nodes", str(name), "address")


def _pools(values: Mapping[str, Any]) -> Iterator[tuple[AddressRange, Path]]:
    """What the site announces by BGP: routers know one way to an address, whichever site it is at."""
    if at(values, "addresses", "announced_by") == "cilium_bgp":
        for index, text in enumerate(items(at(values, "addresses", "pool"))):
            block = read_range(text) if isinstance(text, str) else None
            if block is not None:
                yield block, ("addresses", "pool", str(index))


def _announced_twice(pools: list[tuple[AddressRange, Path]], site: _Site, other: FilePath) -> Iterator[Problem]:
    for block, own in pools:
        for there, path in site.pools:
            if block.overlaps(there):
                line = site.document.line(path)
                where = f"{other.name}:{line}" if line else other.name
                what = f"{block} has addresses of {there}, {'.'.join(path)} ({where})"
                yield Problem(path=own, what=what, fix=_FIX)


def _manifest(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """The file of Cilium's manifest, and which one it is; None where no other site has the file."""
    machines, by_bgp = at(values, "cluster", "machines"), at(values, "addresses", "announced_by") == "cilium_bgp"
    measured = at(values, "monitoring", "pod_network") == "measured"
    if not isinstance(machines, Mapping) or machines.get("cni", "cilium") != "cilium":
        return None
    named = machines.get("cilium_manifest")
    if (named is None and (by_bgp or measured)) or not isinstance(named, str | None):
        return None
    return str(FilePath(str(named or MachinesSpec.model_fields["cilium_manifest"].default))), (
        f"{'with' if by_bgp else 'without'} BGP{' and with metrics' if measured else ''}"
    )


def _another_cilium(own: tuple[str, str] | None, site: _Site, other: FilePath) -> Iterator[Problem]:
    """Each `sitectl bundle` would write the one over the other."""
    if own is not None and site.manifest is not None and own[0] == site.manifest[0] and own[1] != site.manifest[1]:
        yield Problem(
            path=_MANIFEST,
            what=f"is the file of {other.name} too, which takes Cilium {site.manifest[1]}",
            got=own[0],
            fix="take it out of the site with cilium_bgp or metrics, which then has a file of its own",
        )
