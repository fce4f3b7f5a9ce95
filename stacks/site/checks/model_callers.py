"""Whether a tenant that a key of a model names may call that model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Path, Problem, nearest, shown
from stacks.site.reading.raw import at, items, mapping


def not_a_caller(values: Mapping[str, Any], path: Path, tenant: str, model: str, why: str) -> Iterator[Problem]:
    """Nothing for a tenant that may call the model. why: what follows if it may not, after a comma."""
    tenants = mapping(values.get("tenants"))
    may = [str(name) for name, spec in tenants.items() if model in items(at(spec, "models"))]
    allowed = ", ".join(may) or f"no tenant may call {model}"
    if tenant not in tenants:
        near = nearest(tenant, may)
        fix = f"write {near}" if near else "take it out"
        yield Problem(
            path=path, what="is no tenant of the site", got=shown(tenant), allowed=allowed, near=near, fix=fix
        )
    elif tenant not in may:
        yield Problem(
            path=path,
            what=f"may not call {model}, {why}",
            got=shown(tenant),
            allowed=allowed,
            fix=f"take it out, or add {model} to tenants.{tenant}.models",
        )
