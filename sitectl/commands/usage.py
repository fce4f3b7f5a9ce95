"""`usage`: what tenants used of a site, in requests, tokens and money."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from floor.counts import counted
from floor.problems import SiteError
from services.ledger.months import Month
from sitectl.commands.months import MONTH
from sitectl.live import ledger, site_cluster
from sitectl.live.ledger import Used
from sitectl.offline import checkout
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.gpu_time import token_time
from stacks.plan.site_plan import plan_file

MORE = f"""\
\b
  python -m sitectl usage prod
  python -m sitectl usage prod --by day,model --tenant search
  python -m sitectl usage prod --month 2026-11 --by tenant,key --json

Every request that the gateway answered a tenant is in the site's ledger, within seconds after its end; months and days
are UTC. Cached tokens are part of the prompt's. GPU-S are what they took of the model's GPUs, in GPU-seconds, as its
proof has it for full GPUs; - for models without a load. It needs the stack's kubeconfig and kubectl, and a role that
reads the Secret ledger-secrets. {ledger.PAGE} has prices, bills and what they do not know.
"""
_BY = ("tenant", "key", "model", "revision", "tier", "day")


def _groups(_: click.Context, __: click.Parameter, words: str) -> list[str]:
    names = [word.strip() for word in words.split(",")]
    for name in names:
        if name not in _BY or names.count(name) > 1:
            raise click.BadParameter(f"got '{words}'; allowed: some of {','.join(_BY)}, each once")
    # Days come first, so that each day's rows are together.
    return sorted(names, key=lambda name: name != "day")


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option("--month", type=MONTH, default=lambda: Month.of(time.time()), metavar="YYYY-MM", help="default: this one")
@click.option("--tenant", metavar="TENANT", help="only this one")
@click.option(
    "--by",
    default="tenant,model",
    callback=_groups,
    show_default=True,
    metavar="WHAT[,WHAT]",
    help=f"what to add up by: {', '.join(_BY)}",
)
@pass_context
def command(context: CommandContext, *, site: str, month: Month, tenant: str | None, by: list[str]) -> int:
    file = checkout.site_files(context.project, [site])[site]
    with context.progress.layer(f"ask the ledger of {site}"):
        cluster = site_cluster.of_site(context.project, site, file)
        with ledger.of_cluster(cluster) as asked:
            used = asked.used(month.start, (month + 1).start, by, tenant)
            words = [*by, *(word for word in ("model", "revision") if word not in by)]
            try:
                of_revisions = used if words == by else asked.used(month.start, (month + 1).start, words, tenant)
            except SitectlError as error:
                if "group_by" not in error.problem.what:
                    raise
                context.progress.note(f"no GPU-seconds: the ledger is an earlier one ({error.problem.what})")
                of_revisions = []
    seconds = _gpu_seconds(file, of_revisions, words, whole=len(by))
    rows = [
        dict(zip(by, row.group, strict=True)) | _figures(row) | {"gpu_seconds": seconds.get(row.group)} for row in used
    ]
    context.say(_text(site, month, by, used, seconds), {"site": site, "month": str(month), "usage": rows})
    return int(Exit.OK)


def _gpu_seconds(file: Path, used: list[Used], words: list[str], *, whole: int) -> dict[tuple[str, ...], float]:
    """Of each group, of the models that are served and have a load. words: of the rows; a group has `whole` of them.

    A revision that is gone counts as the model's stable one, which has its name. A file that is refused has none: what
    was used is known without it.
    """
    try:
        times = {name: token_time(revision) for name, revision in plan_file(file).named.items()}
    except SiteError:
        return {}
    model, revision = words.index("model"), words.index("revision")
    seconds: dict[tuple[str, ...], float] = defaultdict(float)
    for row in used:
        if taken := times.get(row.group[revision]) or times.get(row.group[model]):
            seconds[row.group[:whole]] += taken.of(row.input_tokens, row.cached_tokens, row.output_tokens)
    return {group: round(total, 3) for group, total in seconds.items()}


def _figures(row: Used) -> dict[str, Any]:
    figures = asdict(row)
    del figures["group"]
    return figures


def _text(site: str, month: Month, by: list[str], used: list[Used], seconds: Mapping[tuple[str, ...], float]) -> str:
    heads = ("REQUESTS", "FAILED", "INPUT", "CACHED", "OUTPUT", "GPU-S", "COST")
    rows = [(*row.group, *_shown(row, seconds.get(row.group))) for row in used]
    costs = ledger.added(row.costs for row in used)
    requests = sum(row.requests for row in used)
    total = f"{site}, {month}: {counted(requests, 'request')}, {ledger.in_words(costs)}"
    if not rows:
        return total
    return "\n".join([*columns([(*(name.upper() for name in by), *heads), *rows], numbers=len(heads)), total])


def _shown(row: Used, gpu_seconds: float | None) -> tuple[str, ...]:
    tokens = (row.requests, row.failed, row.input_tokens, row.cached_tokens, row.output_tokens)
    taken = "-" if gpu_seconds is None else f"{gpu_seconds:,.0f}"
    return (*(f"{count:,}" for count in tokens), taken, ledger.in_words(row.costs))
