"""What the engine keeps and shows, in the form of the driver's: secrets marked, and differences by path."""

from __future__ import annotations

import json
from typing import Any

from lab.plugins import values


def first_json(text: str) -> Any:
    """The JSON in what the engine prints, which may begin with a warning."""
    return json.JSONDecoder().raw_decode(text[text.index("{\n") :])[0]


def resources(exported: str) -> dict[str, dict[str, Any]]:
    """Resources of `stack export --show-secrets` by name."""
    kept = first_json(exported)["deployment"].get("resources", [])
    return {resource["urn"].rpartition("::")[2]: _marked(resource) for resource in kept}


def differences(previewed: str) -> dict[str, dict[str, str]]:
    """Resource name -> path -> kind, of a preview with --json; resources without a change are left out."""
    differing = {}
    for step in first_json(previewed)["steps"]:
        if step["op"] != "same" and step.get("detailedDiff"):
            diff = {path: change["kind"] for path, change in step["detailedDiff"].items()}
            differing[step["urn"].rpartition("::")[2]] = diff
    return differing


def _marked(value: Any) -> Any:
    if isinstance(value, dict) and "plaintext" in value and values.is_secret(value):
        return values.secret(_marked(json.loads(value["plaintext"])))
    if isinstance(value, dict):
        return {key: _marked(inner) for key, inner in value.items()}
    return [_marked(inner) for inner in value] if isinstance(value, list) else value
