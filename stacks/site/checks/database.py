"""The platform's own PostgreSQL: that it has nodes and a bucket it can use, and that no other database is named."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.database import DATABASES, LOG_GIB, ROW_BYTES, DatabaseSpec, own_secret
from components.specs.longhorn import database_class, scratch_class
from components.specs.usage import UsageSpec
from floor.problems import Problem, shown
from stacks.site.reading.raw import at, matching

_SECTION = "database"
_OWN = "cloudnative_pg"
_MONTH_S = 30.44 * 86_400


def provided(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the Secrets that the program writes where it runs the database, so that each reader finds one.

    The directory runs where a gatekeeper decides, and the ledger where the site has the section `usage`.
    """
    if at(values, _SECTION, "run_by") != _OWN:
        return values
    callers = at(values, "callers")
    asked = {
        "callers": at(callers, "decided_by") == "gatekeeper" or at(callers, "keep_both") is True,
        "usage": "usage" in values,
    }
    filled = dict(values)
    for section, database in DATABASES.items():
        given = values.get(section) or {}
        if asked[section] and isinstance(given, Mapping):
            filled[section] = {"database_secret": own_secret(database), **given}
    return filled


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with it, as far as the values can be understood."""
    if at(values, _SECTION, "run_by") != _OWN:
        return
    named = {section: at(values, section, "database_secret") for section in DATABASES}
    for section, secret in named.items():
        if secret is not None and secret != own_secret(DATABASES[section]):
            yield Problem(
                path=(section, "database_secret"),
                what="names a database, and database.run_by cloudnative_pg runs one for it",
                got=shown(secret),
                fix="take it out, or set database.run_by to external",
            )
    if not any(named.values()):
        yield Problem(
            path=(_SECTION, "run_by"),
            what="runs PostgreSQL, and nothing of the site keeps rows in it",
            fix="set callers.decided_by to gatekeeper or add the section usage; or take database out",
        )
    if at(values, _SECTION, "backups") is not None and at(values, "certificates", "system") in (None, "none"):
        yield Problem(
            path=(_SECTION, "backups"),
            what="are written by a plugin whose certificates cert-manager makes, and the site has none",
            allowed="certificates.system: cert_manager or external",
            fix="set certificates.system, or take backups out",
        )
    yield from _class(values)


def _class(values: Mapping[str, Any]) -> Iterator[Problem]:
    named, main = at(values, _SECTION, "storage_class"), at(values, "storage", "storage_class") or "longhorn"
    if at(values, "storage", "system") != "longhorn" or not isinstance(main, str):
        return
    made = [database_class(main), main, scratch_class(main)]
    if isinstance(named, str) and named not in made and named.startswith(main):
        yield Problem(
            path=(_SECTION, "storage_class"),
            what="is no class that the program makes for Longhorn",
            got=shown(named),
            allowed=", ".join(made),
            fix=f"write {made[0]}, or take it out",
        )


def _rows(values: Mapping[str, Any]) -> Iterator[Problem]:
    """A volume that the ledger's rows fill before the last of them may go."""
    loads = [rate for _, rate in matching(values, "models.<name>.load.requests_per_s") if isinstance(rate, int | float)]
    months = at(values, "usage", "keep_months") or UsageSpec.model_fields["keep_months"].default
    size = at(values, _SECTION, "size_gib") or DatabaseSpec.model_fields["size_gib"].default
    if "usage" not in values or not isinstance(months, int) or not isinstance(size, int):
        return
    needed = LOG_GIB + math.ceil(sum(loads) * _MONTH_S * months * ROW_BYTES / 2**30)
    if needed > size:
        yield Problem(
            path=(_SECTION, "size_gib"),
            what=f"has no room for {months} months of rows, if the declared loads are asked for around the clock: once "
            "it is full, no usage is confirmed and no key is made",
            got=f"{size} GiB",
            fix=f"write {needed}, or lower usage.keep_months",
        )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Data without a copy outside of the cluster, and without room."""
    if at(values, _SECTION, "run_by") == _OWN:
        yield from _rows(values)
    if at(values, _SECTION, "run_by") == _OWN and at(values, _SECTION, "backups") is None:
        yield Problem(
            path=(_SECTION,),
            what="has no backups: with its volumes, every key of the directory and every row of usage is lost",
            fix="name a bucket in database.backups (sitectl docs database)",
        )
