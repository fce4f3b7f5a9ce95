"""The ledger of usage: that Envoy pods can ship to it, that its prices are of what the site serves, and that budgets
can be held by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.limits import BUDGETS, SPEND
from floor.problems import Path, Problem, nearest
from stacks.site.reading.raw import at, items, mapping, matching


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with it, as far as the values can be understood."""
    if at(values, "usage", "database_secret") is not None and at(values, "gateway", "controllers") == "external":
        yield Problem(
            path=("usage", "database_secret"),
            what="has Envoy pods ship to the ledger with a token, and with gateway.controllers external their "
            "namespace is not known",
            fix="set gateway.controllers to chart, or take usage out",
        )
    yield from _unsuspended(values)
    yield from _unbilled(values)
    versions = items(at(values, "usage", "prices"))
    yield from _unknown(values, "tiers", range(len(versions)))
    # What is served no longer has prices in earlier versions.
    yield from _unknown(values, "models", range(len(versions))[-1:])
    for place in ("plans.<name>", "tenants.<name>.limits"):
        for budget in BUDGETS:
            for path, most in matching(values, f"{place}.{budget}"):
                if most is not None:
                    yield from _uncounted(values, path)


def _unbilled(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What keeps idle GPUs from having a price, or a bill one currency."""
    path = ("usage", "idle_share")
    if not at(values, *path):
        return
    if not mapping(values.get("prices")):
        yield Problem(
            path=path,
            what="bills what idle GPUs cost, and the site sets no price of them",
            fix="set prices.gpu_hour, or take it out",
        )
        return
    paid, billed = (at(values, section, "currency") or "EUR" for section in ("prices", "usage"))
    if paid != billed:
        yield Problem(
            path=path,
            what="bills what idle GPUs cost, whose price is in another currency than those of tokens",
            got=f"prices.currency {paid}, usage.currency {billed}",
            allowed="one currency for both",
            fix=f"set usage.currency or prices.currency so that both are one, such as {billed}",
        )


def _unsuspended(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What keeps a signal from suspending a key, or from sparing it."""
    has_directory = at(values, "callers", "database_secret") is not None
    if items(at(values, "usage", "abuse", "suspend_on")) and not (has_directory and _decides(values)):
        yield Problem(
            path=("usage", "abuse", "suspend_on"),
            what="has the directory suspend keys and gatekeepers refuse them, which takes both",
            fix="first set callers.decided_by: gatekeeper, and database.run_by: cloudnative_pg or "
            "callers.database_secret (sitectl docs gatekeeper); or take it out: a signal is an alert then",
        )
    tenants = [str(name) for name in mapping(values.get("tenants"))]
    for index, key in enumerate(items(at(values, "usage", "abuse", "never_suspended"))):
        tenant = str(key).partition(".")[0]
        if tenant not in tenants:
            near = nearest(tenant, tenants)
            yield Problem(
                path=("usage", "abuse", "never_suspended", str(index)),
                what=f"is a key of {tenant}, which is no tenant of this site",
                allowed=", ".join(tenants),
                near=near,
                fix="write TENANT.NAME of a key that exists, or take it out",
            )


def _decides(values: Mapping[str, Any]) -> bool:
    return bool(at(values, "callers", "decided_by") == "gatekeeper")


def _uncounted(values: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    """What keeps a limit of a month from being reached."""
    if at(values, "usage", "database_secret") is None:
        yield Problem(
            path=path,
            what="is held by what the ledger counts, and none runs",
            fix="first add usage, with database.run_by: cloudnative_pg or a database_secret (sitectl docs "
            "usage-and-bills); or take it out",
        )
        return
    versions = items(at(values, "usage", "prices"))
    priced = mapping(at(versions[-1], "models")) if versions else {}
    free = ", ".join(sorted(_models_under(values, path) - {*priced})) if path[-1] == SPEND else ""
    if free:
        yield Problem(
            path=path,
            what=f"counts nothing of {free}, which it holds for: the newest of usage.prices has no price of it",
            fix=f"add {free} to usage.prices.{max(0, len(versions) - 1)}.models; 0 where tokens are to cost nothing",
        )


def _models_under(values: Mapping[str, Any], path: Path) -> set[str]:
    """Models of the tenants that a limit holds for: its own, or those of its plan without another one."""
    tenants = mapping(values.get("tenants"))
    if path[0] == "tenants":
        held = [tenants[path[1]]]
    else:
        own = [spec for spec in tenants.values() if at(spec, "plan") == path[1]]
        held = [spec for spec in own if at(spec, "limits", path[-1]) is None]
    return {name for spec in held for name in items(at(spec, "models")) if name in mapping(values.get("models"))}


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Models that are served for nothing, and networks that are not seen."""
    yield from _unseen(values)
    versions = items(at(values, "usage", "prices"))
    if not versions:
        return
    priced = mapping(at(versions[-1], "models"))
    for model in mapping(values.get("models")):
        if model not in priced:
            yield Problem(
                path=("usage", "prices", str(len(versions) - 1), "models"),
                what=f"has no price of {model}, which the site serves: its tokens cost nothing",
                fix=f"add {model} with input and output; 0 where they are to cost nothing",
            )


def _unseen(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What keeps a key's networks from being counted."""
    if at(values, "usage", "abuse") is None:
        return
    if not _decides(values):
        yield Problem(
            path=("usage", "abuse"),
            what="sees no networks of keys: gatekeepers name these, and none decides",
            fix="set callers.decided_by: gatekeeper (sitectl docs gatekeeper); bursts and refusals are seen without",
        )
    elif at(values, "gateway", "external_traffic_policy") == "Cluster":
        yield Problem(
            path=("gateway", "external_traffic_policy"),
            what="hides clients' addresses, so that usage.abuse counts networks of nodes",
            fix="set it to Local, or take no notice: bursts and refusals are seen as they are",
        )


def _unknown(values: Mapping[str, Any], section: str, versions: range) -> Iterator[Problem]:
    names = [str(name) for name in mapping(values.get(section))]
    if section == "models":
        # What may be ordered shows its price before it is served.
        names += [str(name) for name in mapping(values.get("orderable"))]
    for path, _ in matching(values, f"usage.prices.<name>.{section}.<name>"):
        if int(path[2]) in versions and path[-1] not in names:
            near = nearest(path[-1], names)
            yield Problem(
                path=path,
                what=f"is a price of what the site has not among its {section}",
                allowed=", ".join(names),
                near=near,
                fix=f"write {near}" if near else f"add it to {section}, or take it out",
            )
