"""`bill`: what a tenant owes for one month, out of the site's ledger."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import click

from services.ledger.months import Month
from sitectl.commands.months import MONTH
from sitectl.live import ledger, site_cluster
from sitectl.offline import checkout
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, pass_context, site_names, writing
from sitectl.shell.errors import Exit

MORE = f"""\
\b
  python -m sitectl bill prod search
  python -m sitectl bill prod search --month 2026-11 --format focus

A month is of UTC. Each line is a sort of token of one model, tier and price; the sum is rounded once, half up. `focus`
is CSV in the columns of the FinOps Foundation's FOCUS. {ledger.PAGE} has the formula.
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.argument("tenant", help="a tenant, of earlier also")
@click.option(
    "--month",
    type=MONTH,
    default=lambda: Month.of(time.time()) + -1,
    metavar="YYYY-MM",
    help="default: the last one that is over",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "csv", "json", "focus"]), default="text", show_default=True
)
@pass_context
def command(context: CommandContext, *, site: str, tenant: str, month: Month, form: str) -> int:
    file = checkout.site_files(context.project, [site])[site]
    asked_form = "json" if form == "text" else form
    with context.progress.layer(f"ask the ledger of {site}"):
        cluster = site_cluster.of_site(context.project, site, file)
        with ledger.of_cluster(cluster) as asked:
            text = asked.bill(tenant, str(month), asked_form)
    if form in {"csv", "focus"}:
        with writing():
            print(text, end="", file=context.out)
        return int(Exit.OK)
    bill = json.loads(text)
    if form == "json":
        context.json = True
    context.say(_text(site, bill), bill)
    return int(Exit.OK)


def _text(site: str, bill: dict[str, Any]) -> str:
    heads = ("MODEL", "TIER", "KEY", "TOKENS", "QUANTITY", "PER MILLION", "COST")
    lines = [
        (
            line["model"],
            line["tier"] or "-",
            line["key"],
            line["kind"],
            f"{line['quantity']:,}",
            line["unit_price"] or "no price",
            f"{Decimal(line['cost']):,.6f}",
        )
        for line in bill["lines"]
    ]
    table = columns([heads, *lines], numbers=3) if lines else []
    sums = " and ".join(f"{total['total']} {total['currency']}" for total in bill["totals"]) or "nothing"
    over = "" if bill["final"] else " so far"
    return "\n".join([*table, f"{bill['tenant']} at {site}, {bill['month']}: {sums}{over}"])
