"""Records in DNS: that there are names, that a zone has each, and that their addresses can be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, shown
from stacks.site.reading.raw import address, at, items

_SECTION = "dns"


def gateway_names(given: Iterable[str], certified: Iterable[str], portal: str | None) -> list[str]:
    """Names of the gateway: those that are given, or the host names of its certificate, which may be the portal's too.

    portal: its name, whose record has another address.
    """
    hosts = [name for name in certified if address(name) is None and not name.startswith("*.") and name != portal]
    return list(given) or hosts


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong between the section and others, as far as the values can be understood."""
    if at(values, _SECTION, "system") != "external_dns":
        return
    if at(values, "gateway", "controllers") == "external":
        yield Problem(
            path=(_SECTION, "system"),
            what="reads the addresses of Services that the program's own Envoy Gateway makes, and the site has others",
            got="external_dns with gateway.controllers: external",
            fix="set system to none and write the records, or gateway.controllers to chart",
        )
    names = list(_names(values))
    if not any(path[0] != "portal" for path, _ in names):
        yield Problem(
            path=(_SECTION,),
            what="has no name for the gateway",
            fix="add the names that clients call to names, such as [llm.site.example]",
        )
    zones = [str(zone).rstrip(".") for zone in items(at(values, _SECTION, "rfc2136", "zones"))]
    portal = at(values, "portal", "hostname")
    for path, name in names:
        if path[0] == _SECTION and name == portal:
            yield Problem(
                path=path,
                what="is portal.hostname too, and its record would have the addresses of both",
                got=shown(name),
                fix="take it out: the portal's name gets a record of its own",
            )
        if zones and not any(name == zone or name.endswith(f".{zone}") for zone in zones):
            yield Problem(
                path=path,
                what="is in no zone of dns.rfc2136.zones, so no record of it would be written",
                got=shown(name),
                allowed=f"a name in {', '.join(zones)}",
                fix="add its zone to dns.rfc2136.zones, or take dns.names for names that have one",
            )


def _names(values: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    given = [name for name in items(at(values, _SECTION, "names")) if isinstance(name, str)]
    certified = [name for name in items(at(values, "certificates", "names")) if isinstance(name, str)]
    where = (_SECTION, "names") if given else ("certificates", "names")
    portal = at(values, "portal", "hostname")
    for name in gateway_names(given, certified, portal):
        yield (*where, str((given or certified).index(name))), name
    if isinstance(portal, str):
        yield ("portal", "hostname"), portal
