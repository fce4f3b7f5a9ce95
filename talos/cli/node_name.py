"""Which node a machine is: one that runs by a name is not given another, nor erased in the place of another."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from talos.api.client import MachineClient
from talos.api.errors import AbsentError, DeniedError
from talos.cli.reaching import Contact


def name_of(client: MachineClient) -> str:
    """The host name in the config that a machine runs by; empty where it has none, or the client may not read it."""
    try:
        return _stated(client.machine_config())
    except (AbsentError, DeniedError):
        return ""


def refusal(contact: Contact, config: bytes) -> tuple[str, str] | None:
    """Why the machine is not the config's, and the fix; None where it is, or has no config yet."""
    if contact.state == "maintenance":
        return None
    running, wanted = name_of(contact.client), _stated(config)
    if not (running and wanted) or running == wanted:
        return None
    return (
        f"it runs as the node {running}, not as {wanted}: a machine keeps its name, since the end of {running} in the "
        "site erases the machine at this address",
        f"write {running} for this address; for another name, take {running} out, run `up`, and add {wanted} then",
    )


def _stated(config: str | bytes) -> str:
    documents = [document for document in yaml.safe_load_all(config) if isinstance(document, Mapping)]
    named = (document.get("hostname") for document in documents if document.get("kind") == "HostnameConfig")
    return str(next(filter(None, named), ""))
