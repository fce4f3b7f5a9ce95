"""What a lost state held and the cluster still has: keys, the directory's secrets, the seed of MCP sessions, releases.

Pure. Values are secrets: no repr shows them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.specs.access import TenantSpec, secret_name
from services.directory import variables

Object = Mapping[str, Any]

MCP_SEED = "mcp-seed"
"""Name of the seed in the file, as `components.minted` reads it."""
_SEED = re.compile(r"-{1,2}mcpSessionEncryptionSeed=(.+)")


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """What was found, by its name in the file, and the clients of the site of which no key was found."""

    values: Mapping[str, Mapping[str, Any]] = field(repr=False)
    missing: tuple[str, ...]


def of_cluster(
    tenants: Mapping[str, TenantSpec], secrets: Sequence[Object], controllers: Sequence[Object]
) -> Recovered:
    """The values in the rotations that the site's file states.

    secrets: of the gateway's namespace. controllers: Deployments of the AI gateway.
    """
    by_name = {secret["metadata"]["name"]: dict(_texts(secret)) for secret in secrets}
    values: dict[str, dict[str, Any]] = {}
    missing: list[str] = []
    for tenant, spec in sorted(tenants.items()):
        # Of an earlier program, the Secret has the tenant's name alone.
        held = by_name.get(secret_name(tenant, spec)) or by_name.get(f"keys-{tenant}", {})
        for purpose, key in sorted(spec.keys.items()):
            if key.sha256 is not None:
                continue
            client = f"{tenant}.{purpose}"
            if client in held:
                values[client] = {"value": held[client], "rotation": key.rotation}
            else:
                missing.append(client)
    held = by_name.get(variables.TOKENS_SECRET, {})
    # As `components.tenants.directory` names them.
    values |= {f"{variables.SERVICE}-{key}": {"value": value, "rotation": 1} for key, value in sorted(held.items())}
    seed = next(_seeds(controllers), None)
    if seed is not None:
        values[MCP_SEED] = {"value": seed, "rotation": 1}
    return Recovered(values=values, missing=tuple(missing))


def helm_records(secrets: Sequence[Object], namespaces: Sequence[str]) -> list[tuple[str, str]]:
    """Namespace and name of each of Helm's releases there, out of the labels of its Secrets."""
    records = {
        (secret["metadata"]["namespace"], str(secret["metadata"].get("labels", {}).get("name", "")))
        for secret in secrets
        if secret["metadata"]["namespace"] in namespaces
    }
    return sorted(records)


def _texts(secret: Object) -> Iterator[tuple[str, str]]:
    for name, value in (secret.get("data") or {}).items():
        try:
            yield name, base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue


def _seeds(controllers: Sequence[Object]) -> Iterator[str]:
    for deployment in controllers:
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            for argument in container.get("args") or ():
                if match := _SEED.fullmatch(argument):
                    yield match[1]
