"""Commands that make a random value once. It is kept in the encrypted state; after a loss of that, a file has it."""

from __future__ import annotations

import shlex

import pulumi
from pulumi_command import local

from components.component import Component
from components.objects import KEEP

_NEW = """import secrets; print({prefix}secrets.token_urlsafe(32), end="")"""
# A file that cannot be read ends the command: a new value in its place would shut clients out.
_AGAIN = (
    "import json, secrets, sys; file, name, rotation, prefix = sys.argv[1:]; "
    "kept = json.load(open(file)).get(name, {}); "
    'print(kept["value"] if kept.get("rotation") == int(rotation) else prefix + secrets.token_urlsafe(32), end="")'
)
MCP_SEED = "mcp-seed"
"""Name of the seed of MCP sessions' keys in the file; keys of tenants have their client ids."""


def mint(name: str, *, prefix: str = "", rotation: int = 1, recovered: str | None = None) -> str:
    """Prints 256 random bits, or the value that the file `recovered` has under this name for this rotation."""
    if recovered is None:
        code = _NEW.format(prefix=f'"{prefix}" + ' if prefix else "")
        return f"python3 -c '{code}'"
    return shlex.join(["python3", "-c", _AGAIN, recovered, name, str(rotation), prefix])


def minted(parent: Component, suffix: str, create: str, *, rotation: int | None = None) -> pulumi.Output[str]:
    """What a command of `mint` prints, secret: made once for each rotation, and no other for another wording."""
    command = local.Command(
        f"{parent.name}-{suffix}",
        create=create,
        update=KEEP,
        triggers=None if rotation is None else [rotation],
        logging=local.Logging.NONE,
        opts=pulumi.ResourceOptions(parent=parent, additional_secret_outputs=["stdout"]),
    )
    return pulumi.Output.secret(command.stdout)
