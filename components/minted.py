"""Commands that make a random value once. It is kept in the encrypted state; after a loss of that, a file has it."""

from __future__ import annotations

import shlex

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
