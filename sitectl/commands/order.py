"""`order`: orders of models that a tenant may not call yet, from the asking to the change of the site's file."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click

from floor.counts import counted
from floor.problems import meant, nearest
from services.directory.variables import OPEN_ORDERS
from sitectl.commands.site_directory import site_directory
from sitectl.forge import choosing
from sitectl.forge.model import Forge
from sitectl.live.key_directory import KeyDirectory
from sitectl.offline.planned import plan_of
from sitectl.offline.proposal import Proposal, propose
from sitectl.output.columns import columns
from sitectl.shell import branches
from sitectl.shell.command import Command, CommandContext, CommandGroup, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.orderable import offer, takes
from stacks.plan.site_plan import SitePlan

PAGE = "docs/how-to/portal.md"
MORE = f"""\
\b
  python -m sitectl order list prod
  python -m sitectl order place prod search llama-3-3 --note agents
  python -m sitectl order propose prod 3f2a9c01bd
  python -m sitectl order decline prod 3f2a9c01bd 'no GPU is free'

People order at the portal, or `place` does. What may be ordered is below `orderable` of the site's file, or served to
others already. An order is served once that file, as `up` applied it, lets the tenant call the model.

It needs the stack's kubeconfig and kubectl, and a role that reads the Secret directory-secrets. {PAGE} has every step.
"""
_PROPOSE_MORE = """\
It makes the branch order/ID with one commit on top of the last one: the model moves from `orderable` to `models`, and
into the tenant's list. The commit's message has the proof, the time and the cost. The files of the checkout stay as
they are. With --forge it pushes the branch to `origin` and opens the pull or merge request; the token is GITHUB_TOKEN
or GITLAB_TOKEN. A person merges it, or the forge once all checks have passed, where order_policy of the site's file
approves the order; then `up` serves the model.

\b
  python -m sitectl order propose prod --forge github --into main

exit status 1: the site could not work with the change of an order; that order stays as it is
"""


@click.group(cls=CommandGroup, epilog=MORE)
def command() -> None:
    pass


_SITE = click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
_ID = click.argument("order_id", metavar="ID", help="the order's id, as `list` shows it")


@command.command("list", cls=Command)
@_SITE
@click.option("--tenant", metavar="TENANT", help="only the orders of this one")
@click.option("--all", "all_states", is_flag=True, help="also those that are served or declined")
@pass_context
def list_(context: CommandContext, *, site: str, tenant: str | None, all_states: bool) -> int:
    """List orders that are open, the newest first."""
    with site_directory(context, site) as directory:
        orders = directory.orders(tenant)
    shown = [order for order in orders if all_states or order["state"] in OPEN_ORDERS]
    rows = [("ID", "TENANT", "MODEL", "STATE", "ASKED", "BY", "MORE")]
    rows += [
        (
            order["id"],
            order["tenant"],
            order["model"],
            order["state"],
            datetime.fromtimestamp(order["asked"], UTC).strftime("%Y-%m-%d %H:%MZ"),
            order["asked_by"],
            order["why"] or order["note"] or "-",
        )
        for order in shown
    ]
    lines = [*columns(rows), f"{site}: {counted(len(shown), 'order')}"]
    context.say("\n".join(lines), {"site": site, "orders": shown})
    return int(Exit.OK)


@command.command(cls=Command)
@_SITE
@click.argument("tenant", help="a tenant of the site's file")
@click.argument("model", help="a model of orderable, or one that is served to others")
@click.option("--note", default="", metavar="TEXT", help="what it is for, for those who decide")
@pass_context
def place(context: CommandContext, *, site: str, tenant: str, model: str, note: str) -> int:
    """Order a model for a tenant, as the portal does."""
    words = _verdict(plan_of(context.project, site, without=("weights", "images")), model)
    with site_directory(context, site) as directory:
        made = directory.order_model({"tenant": tenant, "model": model, "note": " ".join(note.split())})
    context.say(f"{site}: order {made['id']} of {model} for {tenant}: {words}", {"site": site, "order": made})
    return int(Exit.OK)


def _verdict(plan: SitePlan, model: str) -> str:
    """What the model takes. Raises SitectlError for one that does not fit, or that cannot be ordered."""
    if model in plan.site.models:
        return "it is served already, and takes no more GPUs"
    if model not in plan.site.orderable:
        known = [*plan.site.orderable, *plan.site.models]
        raise SitectlError(
            f"{plan.site.name} has no model {model} that can be ordered{meant(nearest(model, known))}",
            allowed=", ".join(known),
            fix="name one of these, or add it to orderable of the site's file",
            status=Exit.USAGE,
        )
    offered = offer(plan, model)
    if offered.revision is None or offered.ready is None:
        fix = "free what it needs, or change it below orderable"
        raise SitectlError(f"{model} does not fit: {'; '.join(offered.reasons)}", fix=fix, status=Exit.REFUSED)
    return f"takes {takes(offered.revision)}; once its change is applied, it answers {offered.ready.text()}"


@command.command("propose", cls=Command, epilog=_PROPOSE_MORE)
@_SITE
@click.argument("order_id", metavar="[ID]", required=False, help="one order (default: all that are asked)")
@click.option("--into", default="", metavar="BRANCH", help="where it is to be merged (default: the branch here)")
@choosing.options(required=False)
@pass_context
def propose_(context: CommandContext, /, *, site: str, order_id: str | None, into: str, **account: Any) -> int:
    """Make the change of the site's file for an order, with its proof, on a branch or as a pull request."""
    forge = choosing.choose(**account) if account["forge"] else None
    into = into or branches.checked_out(context.project)
    if forge and not into:
        raise SitectlError("--into: no branch is checked out", fix="--into main", status=Exit.USAGE)
    lines, records, status = [], [], Exit.OK
    with site_directory(context, site) as directory:
        for order in _chosen(directory, order_id):
            try:
                proposal, reference = _propose(context, site, order, directory.orders(), forge, into)
            except SitectlError as error:
                # Of many, one that cannot be proposed holds up no other.
                if order_id:
                    raise
                lines.append(f"{order['id']}: {error.problem.sentence}; fix: {error.problem.fix}")
                records.append({"order": order["id"], "error": error.record()})
                status = error.status
                continue
            directory.change_order(order["id"], "proposed", reference)
            lines.append(f"{order['id']}: {proposal.title}: {reference}")
            lines += [_next(proposal, at_forge=forge is not None)]
            records.append(
                {
                    "order": order["id"],
                    "branch": proposal.branch,
                    "reference": reference,
                    "merged_once_checked": forge is not None and not proposal.person,
                }
            )
    context.say("\n".join(lines or [f"{site}: no order is open"]), {"site": site, "proposals": records})
    return int(status)


def _next(proposal: Proposal, *, at_forge: bool) -> str:
    if not at_forge:
        return f"  next: git push origin {proposal.branch}, and open a request to merge it"
    return f"  next: a person merges it: {proposal.person}" if proposal.person else "  it is merged once it is checked"


def _chosen(directory: KeyDirectory, order_id: str | None) -> list[dict[str, Any]]:
    orders = directory.orders()
    if order_id is None:
        return [order for order in orders if order["state"] == "asked"]
    states = {order["id"]: order["state"] for order in orders}
    if states.get(order_id) not in OPEN_ORDERS:
        raise SitectlError(
            "no such order is open",
            got=f"{order_id}, which is {states[order_id]}" if order_id in states else order_id,
            fix="sitectl order list SITE has them",
            status=Exit.USAGE,
        )
    return [order for order in orders if order["id"] == order_id]


def _propose(
    context: CommandContext,
    site: str,
    order: dict[str, Any],
    others: list[dict[str, Any]],
    forge: Forge | None,
    into: str,
) -> tuple[Proposal, str]:
    """The proposal, and where it is."""
    person = ""
    if forge is not None and not branches.is_origins(context.project, into):
        # Its other commits would be merged with the order's, or the policy is not the one in force.
        person = f"the last commit here is not that of origin's {into}"
    with context.progress.layer(f"propose {order['model']} for {order['tenant']}"):
        proposal = propose(context.project, site, order, others=others, person=person)
        if forge is None:
            return proposal, f"branch {proposal.branch}"
        branches.push(context.project, proposal.branch)
        change = forge.open_change(proposal.title, proposal.body, proposal.branch, into)
    if not proposal.person:
        try:
            with context.progress.layer(f"have {change.address} merged once it is checked"):
                forge.merge_once_checked(change, proposal.commit)
        except SitectlError as error:
            # The request is open: a person can merge it.
            proposal = replace(proposal, person=f"{error.problem.sentence}; fix: {error.problem.fix}")
    return proposal, change.address


@command.command(cls=Command)
@_SITE
@_ID
@click.argument("reason", help="why, for those who asked")
@pass_context
def decline(context: CommandContext, *, site: str, order_id: str, reason: str) -> int:
    """Decline an order; its tenant reads the reason at the portal."""
    with site_directory(context, site) as directory:
        order = directory.change_order(order_id, "declined", " ".join(reason.split()))
    line = f"{site}: order {order['id']} of {order['model']} for {order['tenant']} is declined"
    context.say(line, {"site": site, "order": order})
    return int(Exit.OK)
