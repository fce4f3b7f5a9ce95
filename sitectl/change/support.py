"""Models that a change takes from tenants before the day until which they may count on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from floor.revision_ids import RevisionId
from sitectl.change.saved_previews import SAVE_ONE
from sitectl.change.verdicts.model import Severity, Verdict
from sitectl.shell.errors import SitectlError
from stacks.plan.hub_revisions import served_revision
from stacks.plan.models import ModelPlan
from stacks.plan.site_plan import SitePlan

Broken = tuple[str, str, str]
"""Model, the last day that was promised, and what happens before it."""


def between(before: SitePlan | None, after: SitePlan | None, today: str = "") -> list[Broken]:
    """What breaks a promise that has not ended; nothing where a side has no plan. today: of UTC, else the clock's."""
    if before is None or after is None:
        return []
    day = date.fromisoformat(today) if today else datetime.now(UTC).date()
    portal = before.site.portal
    notice = (day + timedelta(days=portal.notice_days)).isoformat() if portal and portal.notice_days else ""
    return [
        (name, until, what)
        for name, model in sorted(before.models.items())
        if (until := model.stable.spec.served_until or notice) and until >= day.isoformat()
        for what in _broken(model, after.models.get(name), until)
    ]


def _broken(old: ModelPlan, new: ModelPlan | None, until: str) -> Iterator[str]:
    if new is None:
        yield "is removed"
        return
    was, becomes = _checkpoint(old), _checkpoint(new)
    if was != becomes:
        yield f"is served by {becomes} in place of {was}"
    now = new.stable.spec.served_until
    if not now and old.stable.spec.served_until:
        yield "is promised for no time any more"
    elif now and now < until:
        yield f"is promised until {now} alone"


def _checkpoint(model: ModelPlan) -> str:
    """What its answers are of, in words."""
    spec = model.stable.spec
    quantised = f", {spec.server.quantization} on loading" if spec.server.quantization else ""
    return f"{spec.entry.repository} at {served_revision(spec)[:12]}{quantised}"


def of_records(records: Any) -> list[Broken]:
    """From a saved preview, which may come from any source. Raises SitectlError for another form."""
    try:
        return [(str(model), str(until), str(what)) for model, until, what in records or ()]
    except (TypeError, ValueError) as error:
        raise SitectlError(
            "the models that are promised in this preview have not the form that sitectl writes", fix=SAVE_ONE
        ) from error


def verdicts(broken: Iterable[Broken], models: Mapping[str, Iterable[str]]) -> list[Verdict]:
    """A row for each. models: of each tenant, dedicated replicas by their own name."""
    called = {tenant: {RevisionId.of(name).model for name in names} for tenant, names in models.items()}
    return [
        Verdict(
            severity=Severity.REPLACED,
            resource=f"promise {model}",
            what=f"model {model} {what}, and tenants may count on it until {until}",
            reason=f"models.{model}.served_until, or portal.notice_days, promises it to them",
            tenants=tuple(sorted(tenant for tenant, names in called.items() if model in names)),
            model=model,
        )
        for model, until, what in broken
    ]
