"""Which node a machine is: one that runs by a name is not given another, nor erased in the place of another.

Nor does a control plane become a worker or the other way round: Talos has no such change, and a control plane that is
one no longer leaves its member of etcd behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import yaml

from talos.api.client import MachineClient
from talos.api.errors import AbsentError, DeniedError
from talos.cli.reaching import Contact


def name_of(client: MachineClient) -> str:
    """The host name in the config that a machine runs by; empty where it has none, or the client may not read it."""
    return _of(_running(client), "hostname")


def refusal(contact: Contact, config: bytes) -> tuple[str, str] | None:
    """Why the machine is not the config's, and the fix; None where it is, or has no config yet."""
    if contact.state == "maintenance":
        return None
    has, given = _running(contact.client), list(yaml.safe_load_all(config))
    running, wanted = _of(has, "hostname"), _of(given, "hostname")
    if running and wanted and running != wanted:
        return (
            f"it runs as the node {running}, not as {wanted}: a machine keeps its name, since the end of {running} in "
            "the site erases the machine at this address",
            f"write {running} for this address; for another name, take {running} out, run `up`, and add {wanted} then",
        )
    kind, other = _of(has, "type"), _of(given, "type")
    if kind and other and kind != other:
        return (
            f"it runs as a {kind}, not as a {other}: Talos makes no other one of a machine that runs",
            f"set the role of {wanted or 'this machine'} back; for another one, take it out, run `up`, and add it then",
        )
    return None


def _running(client: MachineClient) -> list[Any]:
    try:
        return list(yaml.safe_load_all(client.machine_config()))
    except (AbsentError, DeniedError):
        return []


def _of(config: list[Any], key: Literal["hostname", "type"]) -> str:
    """A machine's name by its document of that kind, or its type, `controlplane` or `worker`; empty without."""
    documents = [document for document in config if isinstance(document, Mapping)]
    if key == "hostname":
        given = [document.get(key) for document in documents if document.get("kind") == "HostnameConfig"]
    else:
        given = [(document.get("machine") or {}).get(key) for document in documents if "kind" not in document]
    return str(next(filter(None, given), ""))
