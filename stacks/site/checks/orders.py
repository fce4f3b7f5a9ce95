"""Whether the tenants of the policy on orders are tenants of the site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Problem, nearest, shown
from stacks.site.reading.raw import at, items, mapping


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """One for each name that is none."""
    tenants = [str(name) for name in mapping(values.get("tenants"))]
    for place, name in enumerate(items(at(values, "order_policy", "tenants"))):
        if name not in tenants:
            near = nearest(str(name), tenants)
            yield Problem(
                path=("order_policy", "tenants", str(place)),
                what="is no tenant of the site",
                got=shown(name),
                allowed=", ".join(tenants),
                near=near,
                fix=f"write {near}" if near else "take it out",
            )
