"""`costs`: what a site's GPUs cost in a month, what tenants owe for it, and how much stood idle."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import click

from services.ledger.months import Month
from sitectl.commands.months import MONTH
from sitectl.live import ledger, site_cluster
from sitectl.live.ledger import Used
from sitectl.offline import checkout
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.idle import GpuCost, gpu_costs
from stacks.plan.site_plan import plan_file

MORE = f"""\
\b
  python -m sitectl costs prod
  python -m sitectl costs prod --month 2026-11 --json

GPUs cost prices.gpu_hour of the site's file, and power at full load, with the replicas that it sets today, for all
hours of the month. USED is the share of the tokens that the model is proven to carry within its targets, and over the
band of its speed; what is left stood idle. BILLED are the ledger's rows. {ledger.PAGE} has more.
"""
_HEADS = ("MODEL", "GPUS", "TOKENS", "USED", "COST", "BILLED", "PER MILLION")


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option("--month", type=MONTH, default=lambda: Month.of(time.time()), metavar="YYYY-MM", help="default: this one")
@pass_context
def command(context: CommandContext, *, site: str, month: Month) -> int:
    file = checkout.site_files(context.project, [site])[site]
    plan = plan_file(file)
    if plan.site.prices is None:
        raise SitectlError(
            f"{site} sets no prices, so what its GPUs cost is unknown",
            fix=f"set prices.gpu_hour in the file of {site}",
            status=Exit.REFUSED,
        )
    end = min(datetime.now(UTC), (month + 1).start)
    hours = max(0.0, (end - month.start).total_seconds() / 3600)
    with context.progress.layer(f"ask the ledger of {site}"):
        cluster = site_cluster.of_site(context.project, site, file)
        with ledger.of_cluster(cluster) as asked:
            used = {row.group[0]: row for row in asked.used(month.start, (month + 1).start, ["model"], None)}
    costs = gpu_costs(plan, hours)
    currency = plan.site.prices.currency
    rows = [_record(cost, used.pop(cost.model, None)) for cost in costs]
    gone = ledger.added(row.costs for row in used.values())
    idle = _idle(costs, rows)
    data = {"site": site, "month": str(month), "hours": round(hours, 2), "currency": currency, "models": rows}
    context.say(_text(site, month, hours, currency, rows, gone, idle), data | {"idle_share": idle})
    return int(Exit.OK)


def _record(cost: GpuCost, used: Used | None) -> dict[str, Any]:
    tokens = used.input_tokens + used.output_tokens if used else 0
    share = tokens / cost.tokens if cost.tokens else None
    span = cost.tokens_span.mapped(lambda carried: tokens / carried) if cost.tokens and tokens else None
    return {
        "model": cost.model or None,
        "gpus": cost.gpus,
        "tokens": tokens,
        "used_share": share,
        "used_share_over_the_band": asdict(span) if span else None,
        "cost": round(cost.cost, 2),
        "billed": dict(used.costs) if used else {},
        "cost_per_million_tokens": round(cost.cost / tokens * 1e6, 4) if tokens else None,
    }


def _idle(costs: list[GpuCost], rows: list[dict[str, Any]]) -> float | None:
    """Share of the GPUs' time in which nothing was asked of them; of models without a load it is not known."""
    known = [(cost, row) for cost, row in zip(costs, rows, strict=True) if cost.tokens or not cost.model]
    gpus = sum(cost.gpus for cost, _ in known)
    if not gpus:
        return None
    return sum(cost.gpus * (1 - min(1.0, row["used_share"] or 0.0)) for cost, row in known) / gpus


def _text(
    site: str,
    month: Month,
    hours: float,
    currency: str,
    rows: list[dict[str, Any]],
    gone: Mapping[str, Decimal],
    idle: float | None,
) -> str:
    table = columns([_HEADS, *(_shown(row, currency) for row in rows)], numbers=len(_HEADS) - 1)
    spent, owed = sum(row["cost"] for row in rows), ledger.added([*(row["billed"] for row in rows), gone])
    total = f"{site}, {month}: GPUs cost {spent:,.2f} {currency} in {hours:,.0f} h, "
    total += f"tenants owe {ledger.in_words(owed, currency)}"
    if any(gone.values()):
        total += f", of it {ledger.in_words(gone)} for models that are not served any more"
    return "\n".join([*table, total + (f"; {_percent(idle)} % stood idle" if idle is not None else "")])


def _shown(row: dict[str, Any], currency: str) -> tuple[str, ...]:
    band = row["used_share_over_the_band"]
    ends = sorted(end for end in (band or {}).values() if end is not None)
    used = "-" if row["used_share"] is None else f"{_percent(row['used_share'])} %"
    return (
        row["model"] or "(no model)",
        f"{row['gpus']:g}",
        f"{row['tokens']:,}",
        used + (f" ({_percent(ends[0])} to {_percent(ends[1])} %)" if len(ends) > 1 else ""),
        f"{row['cost']:,.2f} {currency}",
        ledger.in_words(row["billed"]),
        "-" if row["cost_per_million_tokens"] is None else f"{row['cost_per_million_tokens']:,.2f}",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f}"
