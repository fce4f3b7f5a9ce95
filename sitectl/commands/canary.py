"""`canary`: how a site's canaries do beside their models' stable revisions, and what is next."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from typing import Any

import click

from sitectl.live import asked_prometheus, canaries, site_cluster
from sitectl.live.canaries import MeasuredRevision
from sitectl.offline import checkout
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import plan_file

MORE = f"""\
\b
  python -m sitectl canary prod
  python -m sitectl canary prod --window 2h

Compares requests that failed, TTFT and ITL of both revisions, as the site's own Prometheus measured them. It changes
nothing: the share is models.N.canary.percent of the site's file. {canaries.PAGE} has the way from a canary to the
stable revision, and back.

exit status 1: a canary does worse, or had too few requests for a verdict.
"""
_HEADS = ("REVISION", "SERVES", "REQUESTS", "FAILED", "TTFT P95", "ITL P95")
_DURATION = re.compile(r"[1-9][0-9]{0,4}[mhd]")
_UNKNOWN = MeasuredRevision(requests=math.nan, failed=math.nan, ttft_p95_s=math.nan, itl_p95_s=math.nan)


def _duration(_: click.Context, __: click.Parameter, words: str) -> str:
    if not _DURATION.fullmatch(words):
        raise click.BadParameter(f"got '{words}'; allowed: minutes, hours or days, such as 30m, 2h or 1d")
    return words


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option(
    "--window", default="30m", callback=_duration, show_default=True, metavar="TIME", help="how far to look back"
)
@pass_context
def command(context: CommandContext, *, site: str, window: str) -> int:
    file = checkout.site_files(context.project, [site])[site]
    tried = [
        (canary, model.stable.spec.canary.percent)
        for model in plan_file(file).models.values()
        if (canary := model.canary) and model.stable.spec.canary
    ]
    if not tried:
        raise SitectlError(
            f"no model of {site} has a canary", fix=f"see {canaries.PAGE} for how to add one", status=Exit.REFUSED
        )
    with context.progress.layer(f"ask Prometheus of {site}"):
        cluster = site_cluster.of_site(context.project, site, file)
        with asked_prometheus.of_cluster(cluster, canaries.PAGE) as prometheus:
            measured = canaries.measured(prometheus, window)
    compared = [_compared(canary, percent, measured) for canary, percent in tried]
    context.say(
        "\n\n".join(text for text, _ in compared), {"site": site, "canaries": [record for _, record in compared]}
    )
    return int(Exit.REFUSED if any(record["reasons"] for _, record in compared) else Exit.OK)


def _compared(canary: RevisionPlan, percent: int, measured: dict[str, MeasuredRevision]) -> tuple[str, dict[str, Any]]:
    model = canary.model
    of_stable, own = (measured.get(name, _UNKNOWN) for name in (model, canary.name))
    reasons = canaries.judge(of_stable, own)
    rows = [
        _HEADS,
        (model, f"{100 - percent} %", *_figures(of_stable)),
        (canary.name, f"{percent} %", *_figures(own)),
    ]
    text = "\n".join([*columns(rows, numbers=len(_HEADS) - 1), _verdict(model, percent, reasons)])
    figures = {revision: _known(of) for revision, of in (("stable", of_stable), ("canary", own))}
    return text, {
        "model": model,
        "revision": canary.name,
        "percent": percent,
        "reasons": reasons,
        **figures,
    }


def _verdict(name: str, percent: int, reasons: list[str]) -> str:
    if reasons:
        return f"wait: {'; '.join(reasons)}"
    key = f"models.{name}.canary"
    if percent < 100:
        return f"does as well: raise {key}.percent, and run pulumi up"
    return f"does as well, and serves all: write the keys of {key} into models.{name}, too, and run pulumi up"


def _figures(of: MeasuredRevision) -> tuple[str, ...]:
    return (
        _shown(of.requests, "{:,.0f}"),
        _shown(100 * of.failed, "{:.2f} %"),
        _shown(1000 * of.ttft_p95_s, "{:,.0f} ms"),
        _shown(1000 * of.itl_p95_s, "{:,.1f} ms"),
    )


def _shown(number: float, form: str) -> str:
    return "-" if math.isnan(number) else form.format(number)


def _known(of: MeasuredRevision) -> dict[str, float | None]:
    return {key: None if math.isnan(number) else number for key, number in asdict(of).items()}
