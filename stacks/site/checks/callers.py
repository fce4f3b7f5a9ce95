"""Keys of tenants: that there are any, and that what checks them knows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.limits import BOUNDS, BUDGETS, CACHE_SHARE
from floor.problems import Path, Problem, shown
from stacks.site.reading.raw import at, host_of, mapping, matching

_ADMISSIONS = ("models.<name>.pool.admission", "models.<name>.canary.pool.admission")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with keys, as far as the values can be understood."""
    if at(values, "callers", "decided_by") != "gatekeeper" or at(values, "callers", "keep_both"):
        for path, digest in matching(values, "tenants.<name>.keys.<name>.sha256"):
            if digest is not None:
                yield Problem(
                    path=path,
                    what="is all that the site has of this key, and Envoy Gateway compares whole keys",
                    fix="go to a gatekeeper first, in two steps: sitectl docs gatekeeper; or take sha256 out: the "
                    "program then makes a key",
                )
    if at(values, "callers", "decided_by") != "gatekeeper" and not at(values, "callers", "keep_both"):
        yield from _held_by_gatekeepers(values)
    yield from _kept_for_tiers(values)
    yield from _twice(values)
    yield from _of_portal(values)
    if at(values, "callers", "database_secret") is not None:
        return
    for name, tenant in mapping(values.get("tenants")).items():
        if isinstance(tenant, Mapping) and not tenant.get("keys", {}):
            yield Problem(
                path=("tenants", str(name), "keys"),
                what="has no key, and without callers.database_secret none can be made later",
                fix="add one, such as keys: {laptop: {}}, or name a database for the directory of keys",
            )


def _of_portal(values: Mapping[str, Any]) -> Iterator[Problem]:
    """The portal makes keys in the directory, which a gatekeeper reads; and nothing else reads who may use it."""
    if at(values, "portal") is None:
        for path, people in matching(values, "tenants.<name>.people"):
            if people is not None:
                yield Problem(
                    path=path,
                    what="is read by the portal, and the site has none",
                    fix="add the section portal, or take people out",
                )
        if mapping(values.get("orderable")):
            yield Problem(
                path=("orderable",),
                what="is shown by the portal, and the site has none",
                fix="add the section portal, or take orderable out",
            )
        return
    for name in mapping(values.get("orderable")):
        if name in mapping(values.get("models")):
            yield Problem(
                path=("orderable", str(name)),
                what="is in models too, and what is served cannot be ordered",
                fix="take it out of one of the two",
            )
    issuer = at(values, "portal", "issuer")
    if isinstance(issuer, str) and issuer.startswith("http:") and values.get("purpose") != "trial":
        yield Problem(
            path=("portal", "issuer"),
            what="sends what logs people in over a connection that others can read",
            got=shown(issuer),
            fix="use the issuer's https address; a private CA of it is `ca`",
        )
    hostname = at(values, "portal", "hostname")
    if hostname is not None and str(hostname).lower() == host_of(at(values, "portal", "endpoint")).lower():
        yield Problem(
            path=("portal", "hostname"),
            what="is the host of portal.endpoint too, and pages and models have an address each",
            got=shown(hostname),
            fix="give the portal a name of its own",
        )
    if at(values, "callers", "decided_by") != "gatekeeper" or at(values, "callers", "database_secret") is None:
        yield Problem(
            path=("portal",),
            what="makes keys in the directory, which takes a gatekeeper and a database",
            fix="first set callers.decided_by: gatekeeper, and database.run_by: cloudnative_pg or "
            "callers.database_secret (sitectl docs gatekeeper); or take portal out",
        )


def _held_by_gatekeepers(values: Mapping[str, Any]) -> Iterator[Problem]:
    places = ("plans.<name>", "tenants.<name>.limits")
    limits = [(f"{place}.{bound}", bound) for place in places for bound in (*BOUNDS, CACHE_SHARE, *BUDGETS)]
    pages = [(pattern, "admission") for pattern in _ADMISSIONS]
    for pattern, key in [*limits, ("tenants.<name>.prefix_cache", "prefix_cache"), *pages]:
        for path, value in matching(values, pattern):
            if value not in (None, "requests"):
                yield Problem(
                    path=path,
                    what="needs a gatekeeper, and none runs",
                    fix=f"go to a gatekeeper first, in two steps: sitectl docs gatekeeper; or take {key} out",
                )


def _kept_for_tiers(values: Mapping[str, Any]) -> Iterator[Problem]:
    if any(admission == "pages" for pattern in _ADMISSIONS for _, admission in matching(values, pattern)):
        return
    for path, share in matching(values, "tiers.<name>.admitted_below"):
        if share not in (None, 1):
            yield Problem(
                path=path,
                what="is a share of what models have room for, and no model counts that",
                got=shown(share),
                allowed="with pool.admission: pages of a model",
                fix="set pool.admission of the models that the tier shares, or take admitted_below out",
            )


def _twice(values: Mapping[str, Any]) -> Iterator[Problem]:
    first: dict[str, Path] = {}
    for path, digest in matching(values, "tenants.<name>.keys.<name>.sha256"):
        if isinstance(digest, str) and (other := first.setdefault(digest, path)) != path:
            yield Problem(
                path=path,
                what=f"is the key of {'.'.join(other[:-1])} too, so a request with it would have two callers",
                fix="make a key for each: sitectl key new",
            )
