"""The PostgreSQL of a site's operator, outside of the cluster, for the directory of keys.

It runs where the site's file names the Secret with its address, which the assigner then writes as an operator does.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import replace
from pathlib import Path

from floor.namespaces import GATEWAY
from lab.cluster import operator_secret
from lab.cluster.api import Manifest
from lab.cluster.component import Component, own_component
from lab.cluster.postgres import Postgres, as_a_user
from lab.paths import Lab

COMPONENT = "operator-database"
NAME = "directory-database"
"""The Secret."""
_KEY = "url"
_PORT = 5432


def is_named(site_file: Path) -> bool:
    """Whether the site's directory of keys reads this Secret."""
    return bool(operator_secret.value_of(site_file, "callers", "database_secret") == NAME)


def ensure(lab: Lab) -> None:
    """Make the database unless the lab has one; its address, which has the password, is for its owner alone."""
    if lab.database_url.exists():
        return
    password = secrets.token_urlsafe(24)
    server(lab).make(password)
    # Last: the supervisor starts the server once it is there.
    draft = lab.database_url.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(server(lab).url(password))
    draft.replace(lab.database_url)


def wanted(lab: Lab) -> Manifest | None:
    """The Secret, with the database behind it; nothing where the site does not name it."""
    if not is_named(lab.site_file):
        return None
    ensure(lab)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": GATEWAY},
        "type": "Opaque",
        "data": {_KEY: base64.b64encode(lab.database_url.read_bytes()).decode()},
    }


def server(lab: Lab) -> Postgres:
    """The lab's."""
    return Postgres(programs=lab.bin, data=lab.database, host=str(lab.network.database), port=_PORT)


def component(lab: Lab) -> Component:
    """The server as a process of the lab."""
    part = own_component(lab, COMPONENT, tuple(server(lab).command()), folder=lab.home, needs=lab.database_url)
    return replace(part, starter=tuple(as_a_user()))
