"""What tenants are guaranteed before and after a change: no object has it, so the plans of both sides are compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from components.specs.limits import GUARANTEE
from sitectl.change.saved_previews import SAVE_ONE
from sitectl.change.verdicts.model import Severity, Verdict
from sitectl.shell.errors import SitectlError
from stacks.plan.site_plan import SitePlan

Moved = tuple[str, int | None, int | None]
"""Tenant, and its guarantee in tokens per minute before and after; None for none."""


def between(before: SitePlan | None, after: SitePlan | None) -> list[Moved]:
    """Each tenant whose guarantee is another one; none where a side has no plan."""
    if before is None or after is None:
        return []
    old, new = ({name: had.tokens_per_minute for name, had in plan.site.guarantees.items()} for plan in (before, after))
    moved = [(tenant, old.get(tenant), new.get(tenant)) for tenant in sorted({*old, *new})]
    return [(tenant, was, is_) for tenant, was, is_ in moved if was != is_]


def of_records(records: Any) -> list[Moved]:
    """From a saved preview, which may come from any source. Raises SitectlError for another form."""
    try:
        return [(str(tenant), _tokens(was), _tokens(is_)) for tenant, was, is_ in records or ()]
    except (TypeError, ValueError) as error:
        raise SitectlError(
            "the guarantees in this preview have not the form that sitectl writes", fix=SAVE_ONE
        ) from error


def _tokens(value: Any) -> int | None:
    return None if value is None else int(value)


def verdicts(moved: Iterable[Moved], models: Mapping[str, Iterable[str]]) -> list[Verdict]:
    """A row for each tenant. models: those that it may call."""
    return [
        Verdict(
            severity=Severity.LIVE,
            resource=f"guarantee {tenant}",
            what=f"tenant {tenant}: {GUARANTEE} {_shown(was)} -> {_shown(is_)}",
            reason=f"planned for on {', '.join(sorted(models.get(tenant, ()))) or 'its models'}, and set in no object",
            tenants=(tenant,),
        )
        for tenant, was, is_ in moved
    ]


def _shown(tokens: int | None) -> str:
    return "none" if tokens is None else str(tokens)
