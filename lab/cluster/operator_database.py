"""The PostgreSQL of a site's operator, outside of the cluster, for the directory of keys and the ledger.

It runs where the site's file names a Secret with an address of it, which the assigner then writes as an operator does.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from floor.namespaces import GATEWAY
from lab.cluster import operator_secret
from lab.cluster.api import Manifest
from lab.cluster.component import Component, own_component
from lab.cluster.postgres import Postgres, as_a_user
from lab.paths import Lab

COMPONENT = "operator-database"
DIRECTORY, USAGE = "directory-database", "usage-database"
DATABASES: Mapping[str, tuple[str, str]] = {DIRECTORY: ("callers", "directory"), USAGE: ("usage", "ledger")}
"""Secret -> the site's section that names it, and the database."""
_KEY = "url"
_PORT = 5432


def is_named(site_file: Path, name: str) -> bool:
    """Whether the site reads this Secret."""
    return bool(operator_secret.value_of(site_file, DATABASES[name][0], "database_secret") == name)


def ensure(lab: Lab) -> None:
    """Make the databases unless the lab has them; the password is for its owner alone."""
    if lab.database_password.exists():
        return
    password = secrets.token_urlsafe(24)
    server(lab).make([database for _, database in DATABASES.values()], password)
    # Last: the supervisor starts the server once it is there.
    draft = lab.database_password.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(password)
    draft.replace(lab.database_password)


def url(lab: Lab, name: str) -> str:
    """What the Secret has: an address with the password. Raises OSError where the lab has no database."""
    return server(lab).url(DATABASES[name][1], lab.database_password.read_text())


def wanted(lab: Lab, name: str) -> Manifest | None:
    """The Secret, with the database behind it; nothing where the site does not name it."""
    if not is_named(lab.site_file, name):
        return None
    ensure(lab)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": GATEWAY},
        "type": "Opaque",
        "data": {_KEY: base64.b64encode(url(lab, name).encode()).decode()},
    }


def server(lab: Lab) -> Postgres:
    """The lab's."""
    return Postgres(programs=lab.bin, data=lab.database, host=str(lab.network.database), port=_PORT)


def component(lab: Lab) -> Component:
    """The server as a process of the lab."""
    part = own_component(lab, COMPONENT, tuple(server(lab).command()), folder=lab.home, needs=lab.database_password)
    return replace(part, starter=tuple(as_a_user()))
