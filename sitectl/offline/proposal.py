"""The change of a site's file for one order, with its proof, on a branch of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from floor.problems import SiteError
from sitectl.offline import checkout
from sitectl.offline.ordered_file import with_order
from sitectl.shell import branches
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.order_policy import why_a_person
from stacks.plan.orderable import ordered, ready_of, takes
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.site.loader import read_site_file

_HARMLESS = str.maketrans("[]#", "() ")


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """Committed on `branch`, and nothing else is changed."""

    branch: str
    title: str
    body: str
    """Markdown."""
    commit: str
    person: str
    """Why a person has to merge it; empty where the site's policy approves it."""


def propose(
    project: Path, site: str, order: Mapping[str, Any], *, others: Sequence[Mapping[str, Any]] = (), person: str = ""
) -> Proposal:
    """Commit the change that an order asks for. Raises SitectlError for one that the site could not work with.

    others: all orders, of which those that are proposed may take GPUs. person: why the policy is not asked.
    """
    branch, model, tenant = f"order/{order['id']}", order["model"], order["tenant"]
    with branches.added(project, branch) as tree:
        file = tree / checkout.site_files(project, [site])[site].name
        values = read_site_file(file).values
        served = _is_served(values, file, model)
        _require_news(values, file, model, tenant)
        before = _planned(file, model)
        plan = _changed(values, file, model, tenant)
        title = f"{site}: {tenant} may call {model}" if served else f"{site}: serve {model} for {tenant}"
        takes_text = "\n".join(_takes(plan, file, model, served=served))
        # A forge reads commands out of a commit's message, such as one that skips its jobs, and the note is anyone's.
        branches.commit(tree, file, f"{title}\n\nOrder {order['id']}.\n\n{takes_text}\n")
        person = person or why_a_person(plan, before, model, tenant)
        person = person or ("" if served else _uncounted(values, order, others)) or "; ".join(_steps(file))
    decides = f"A person merges it: {person}." if person else "`order_policy` approves it: it is merged once checked."
    return Proposal(
        branch=branch,
        title=title,
        body="\n".join([*_asked(order), "", *([decides, ""] if plan.site.order_policy else []), takes_text]),
        commit=branches.commit_of(project, branch),
        person=person,
    )


def _uncounted(values: Mapping[str, Any], order: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """Which other order is to take GPUs that the site's file does not have yet, in words; empty for none."""
    for other in others:
        if other["id"] != order["id"] and other["state"] == "proposed" and other["model"] not in values["models"]:
            return f"{other['model']} for {other['tenant']} is proposed too, and its GPUs are not counted"
    return ""


def _is_served(values: Mapping[str, Any], file: Path, model: str) -> bool:
    if model in values["models"]:
        return True
    if model in values.get("orderable", {}):
        return False
    raise SitectlError(
        f"{model} is neither in models nor in orderable of {file.name}, as it is in the last commit",
        fix="commit it there as the site is to serve it, or decline the order",
        status=Exit.REFUSED,
    )


def _require_news(values: Mapping[str, Any], file: Path, model: str, tenant: str) -> None:
    """The site may have changed since the order. Raises SitectlError where nothing is left to propose."""
    tenants = values["tenants"]
    if tenant not in tenants:
        what, fix = f"{tenant} is no tenant of {file.name} any more", "decline the order"
    elif model in tenants[tenant]["models"]:
        what, fix = f"{tenant} may call {model} by {file.name} already", "run pulumi up; the order then is served"
    else:
        return
    raise SitectlError(f"{what}, as it is in the last commit", fix=fix, status=Exit.REFUSED)


def _changed(values: Mapping[str, Any], file: Path, model: str, tenant: str) -> SitePlan:
    """Write the change; the plan with it."""
    expected = ordered(values, model, tenant)
    try:
        file.write_text(with_order(file.read_text(), model, tenant))
        if read_site_file(file).values != expected:
            raise ValueError("an anchor or another form is in the way")
    except ValueError as error:
        raise SitectlError(
            f"{file.name} is written in a form that sitectl does not change: {error}",
            fix=f"move {model} from orderable to models, and add it to tenants.{tenant}.models, by hand",
            status=Exit.REFUSED,
        ) from None
    return _planned(file, model)


def _planned(file: Path, model: str) -> SitePlan:
    try:
        # What is locked is asked for in the proposal: it needs the hub.
        return plan_file(file, without=("weights", "images"))
    except SiteError as error:
        reasons = "; ".join(problem.sentence for problem in error.problems[:3])
        fixes = "; ".join(problem.fix for problem in error.problems[:3])
        raise SitectlError(f"{model} does not fit: {reasons}", fix=fixes, status=Exit.REFUSED) from None


def _asked(order: Mapping[str, Any]) -> Iterator[str]:
    day = datetime.fromtimestamp(order["asked"], UTC).strftime("%Y-%m-%d")
    # Within a quote of Markdown, as its text is anyone's.
    asker = order["asked_by"].replace("`", "'")
    yield f"Order {order['id']}, asked by `{asker}` on {day}."
    if order["note"]:
        # In a line that Markdown takes for code, and without what a merge that copies it would make a command of.
        yield from ("", f"    {order['note'].translate(_HARMLESS)}")


def _takes(plan: SitePlan, file: Path, model: str, *, served: bool) -> Iterator[str]:
    revision = plan.models[model].stable
    if served:
        yield "The site serves it already: it takes no more GPUs."
    else:
        yield f"It takes {takes(revision)}. From `pulumi up` on it answers {ready_of(revision).text()}."
    if plan.site.usage.prices and model not in plan.site.usage.prices[-1].models:
        yield "It has no price in `usage.prices`: its tokens cost the tenant nothing."
    yield from (f"Before it is merged: {step}." for step in _steps(file))
    if not served:
        yield from (
            "",
            *(f"    {line}".rstrip() for text in (revision.text(), *plan.rooms) for line in text.split("\n")),
        )


def _steps(file: Path) -> list[str]:
    """What is still to do for a site that locks weights or images."""
    try:
        plan_file(file)
    except SiteError as error:
        return [problem.fix for problem in error.problems]
    return []
