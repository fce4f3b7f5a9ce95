"""`calibrate`: what a model's steps take on a site's own GPUs, by its metrics, for the proof to use."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from sitectl.live import asked_prometheus, measured_periods, site_cluster
from sitectl.offline import checkout
from sitectl.output.columns import columns
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.calibration import (
    FASTEST,
    FEWEST_PERIODS,
    SLOWEST,
    Period,
    measured_of,
    named,
    pace_of,
    prompt_pace_of,
)
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import plan_file
from stacks.proof.order import MeasuredPace

PAGE = "docs/how-to/calibrate-a-site.md"
MORE = f"""\
\b
  python -m sitectl calibrate prod
  python -m sitectl calibrate prod --days 7

Of each ten minutes it finds the pace at which the proof has the mean time between tokens that was measured, for the
requests that came then. It changes nothing: with the lines that it prints in the site's file, the proof takes the
site's own times and their band, instead of published ones. {PAGE} shows when to do it again.

exit status 1: of a model nothing is known: too few periods, requests that are not as declared, or times that no pace
explains.
"""
_HEADS = ("MODEL", "THE PROOF HAS", "PERIODS", "REQUESTS", "PACE", "NINE OF TEN WITHIN")
_DAY_S = 86_400
# Of the periods: more that no pace explains are no exceptions.
_UNEXPLAINED = 0.05
# How far requests may lie from the declared ones, in tokens and in the share that is cached: the proof is of these.
_ALIKE, _HIT_ALIKE = 1.25, 0.1


@dataclass(frozen=True, kw_only=True)
class _Calibrated:
    revision: RevisionPlan
    periods: Sequence[Period]
    paces: Sequence[float]
    prompt_paces: Sequence[float]

    @property
    def measured(self) -> MeasuredPace | None:
        return None if self.reason else measured_of(self.paces, self.prompt_paces)

    @property
    def reason(self) -> str:
        """Why nothing is known; empty where it is."""
        if self.revision.spec.server.engine == "simulator":
            return "it runs on the simulator, whose times are the proof's"
        if len(self.periods) < FEWEST_PERIODS:
            return (
                f"{len(self.periods)} periods of ten minutes had enough requests, and {FEWEST_PERIODS} are the fewest: "
                "look back further with --days, or wait"
            )
        if len(self.paces) < (1 - _UNEXPLAINED) * len(self.periods):
            return (
                f"in {len(self.periods) - len(self.paces)} of {len(self.periods)} periods no pace from x {FASTEST:g} "
                f"to {SLOWEST:g} explains what was measured: compare what runs with the site's file"
            )
        timed = [period for period in self.periods if not math.isnan(period.ttft_s)]
        if len(self.prompt_paces) < len(timed) / 2:
            return (
                f"in {len(timed) - len(self.prompt_paces)} of {len(timed)} periods no pace explains the times to the "
                "first token: requests wait for something that the proof does not know"
            )
        if other := self._other_requests():
            return f"its requests are not as declared: {', '.join(other)}; write what comes into load first"
        return ""

    def _other_requests(self) -> list[str]:
        load = self.revision.proof.order.load
        if load is None:
            return []
        rate = sum(period.requests_per_s for period in self.periods)
        prompt, answer, hit = (
            sum(getattr(period, figure) * period.requests_per_s for period in self.periods) / rate
            for figure in ("prompt_tokens", "answer_tokens", "prefix_hit")
        )
        pairs = (("prompts", prompt, load.prompt_tokens.mean), ("answers", answer, load.answer_tokens.mean))
        other = [
            f"{what} of {mean:,.0f} tokens in the mean, not {declared:,.0f}"
            for what, mean, declared in pairs
            if not 1 / _ALIKE <= mean / declared <= _ALIKE
        ]
        if abs(hit - load.prefix_hit) > _HIT_ALIKE:
            other.append(f"{100 * hit:.0f} % of their tokens cached, not {100 * load.prefix_hit:.0f} %")
        return other


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option(
    "--days", default=1.0, type=click.FloatRange(0.1, 60), show_default=True, help="how many days to look back"
)
@pass_context
def command(context: CommandContext, *, site: str, days: float) -> int:
    file = checkout.site_files(context.project, [site])[site]
    plan = plan_file(file)
    loaded = [model.stable for model in plan.models.values() if _comparable(model.stable)]
    if not loaded:
        raise SitectlError(
            f"no model of {site} that writes text declares a load",
            fix=f"see {PAGE} for what it is needed for",
            status=Exit.REFUSED,
        )
    now = time.time()
    with context.progress.layer(f"ask Prometheus of {site}"):
        cluster = site_cluster.of_site(context.project, site, file)
        with asked_prometheus.of_cluster(cluster, PAGE) as prometheus:
            measured = measured_periods.periods(prometheus, begin=now - days * _DAY_S, end=now)
    with context.progress.layer("find the pace of each period"):
        calibrated = [_calibrated(revision, measured.get(revision.name, [])) for revision in loaded]
    until = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
    keys = {of.revision.model: _keys(of.revision, of.measured, until) for of in calibrated if of.measured}
    context.say(_text(calibrated, keys), {"site": site, "models": [_record(of, keys) for of in calibrated]})
    return int(Exit.REFUSED if any(of.reason for of in calibrated) else Exit.OK)


def _comparable(revision: RevisionPlan) -> bool:
    """Whether its requests have a shape, and times between tokens."""
    return revision.proof.order.load is not None and revision.proof.order.model.task == "generate"


def _calibrated(revision: RevisionPlan, periods: Sequence[Period]) -> _Calibrated:
    paces = [pace for period in periods if (pace := pace_of(revision.proof, period)) is not None]
    of_prompts = [pace for period in periods if (pace := prompt_pace_of(revision.proof, period)) is not None]
    return _Calibrated(revision=revision, periods=periods, paces=paces, prompt_paces=of_prompts)


def _keys(revision: RevisionPlan, measured: MeasuredPace, until: str) -> dict[str, Any]:
    """As the site's file has them."""
    order = revision.proof.order
    return {
        "pace": round(measured.pace, 3),
        "low": math.floor(1000 * measured.low) / 1000,
        "high": math.ceil(1000 * measured.high) / 1000,
        "periods": measured.periods,
        "gpu": order.gpu,
        **({"engine": named(order.engine)} if order.engine else {}),
        "settings": revision.spec.digest,
        "until": until,
    }


def _text(calibrated: Sequence[_Calibrated], keys: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [_HEADS, *(_row(of) for of in calibrated)]
    lines = columns(rows, numbers=4)
    lines += [f"{of.revision.model}: {of.reason}" for of in calibrated if of.reason]
    if keys:
        lines += ["", "write these into the site's file, and see what follows by `sitectl proof`:"]
        lines += [f"  models.{model}.calibration: {_yaml(own)}" for model, own in keys.items()]
    return "\n".join(lines)


def _yaml(keys: Mapping[str, Any]) -> str:
    quoted = {key: f'"{value}"' if key in ("engine", "settings", "until") else value for key, value in keys.items()}
    return "{" + ", ".join(f"{key}: {value}" for key, value in quoted.items()) + "}"


def _row(of: _Calibrated) -> tuple[str, ...]:
    requests = sum(period.requests_per_s * measured_periods.PERIOD_S for period in of.periods)
    known, band = of.revision.proof.order.measured, of.revision.proof.ends.band
    has = f"x {known.pace:.2f}, measured" if known else f"{band}, published"
    periods = f"{len(of.paces)} of {len(of.periods)}"
    measured = of.measured
    pace, within = (
        (f"x {measured.pace:.2f}", f"x {measured.low:.2f} to {measured.high:.2f}") if measured else ("-", "-")
    )
    return of.revision.model, has, periods, f"{requests:,.0f}", pace, within


def _record(of: _Calibrated, keys: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    model = of.revision.model
    return {"model": model, "calibration": keys.get(model), "reason": of.reason}
