"""`proof`: will each model of a site work, what does it hold, and what does it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from floor.counts import counted
from floor.problems import SiteError
from sitectl.offline import checkout, proofs, warned
from sitectl.offline.checkout import Told
from sitectl.output import second_opinion
from sitectl.shell import invocation
from sitectl.shell.command import Command, CommandContext, pass_context, sites_argument
from stacks.plan.site_plan import plan_file
from stacks.plan.take_overs import describe_take_overs

MORE = """\
Only arithmetic: no engine, no cluster, no network. Each figure shows whether it is published, calibrated or estimated;
--json adds its formula's source, and every engine setting that follows from the proof with formula and inputs. The last
block shows where all replicas fit, and what a lost node or a rollout leaves.

\b
  python -m sitectl proof berlin
  python -m sitectl proof --json berlin
  python -m sitectl proof --with-aiconfigurator berlin

exit status 1: a model does not fit, misses its targets over the whole band of its speed, or has no room on the nodes
or disks that are alive, and the output names the nearest fix; or a step time leaves the band around the second source.
A model that misses them in a part of its band is uncertain, which is a warning and no failure. 3: the second source is
requested but not installed. A model that it does not know is reported, and is no failure.
"""


@click.command(cls=Command, epilog=MORE)
@sites_argument
@click.option(
    "--with-aiconfigurator",
    "second",
    is_flag=True,
    help="compare step times with NVIDIA's AIConfigurator, an optional package; takes seconds per model",
)
@pass_context
def command(context: CommandContext, *, sites: tuple[str, ...], second: bool) -> int:
    project = context.project
    chosen = checkout.chosen_sites(project, sites)
    if second:
        second_opinion.require()
    report = checkout.tell(chosen, lambda name, file: _prove(project, name, file, second=second))
    blocks = "\n\n".join(report.lines)
    if not report.wrong:
        blocks += f"\n\n{invocation.next_step('rules', sites, context.named)}"
    context.say(blocks, report.records)
    return report.status


def _prove(project: Path, name: str, file: Path, *, second: bool) -> Told:
    try:
        plan = plan_file(file)
    except SiteError as error:
        text = checkout.relative(str(error), project)
        failed = {"holds": False, "verdict": "fails", "problems": text.splitlines()}
        return Told(lines=[text], record=failed, good=False)
    models: dict[str, dict[str, Any]] = {
        name: {
            "block": revision.text(),
            "verdict": revision.proof.verdict,
            "revision": revision.digest,
            "figures": {key: asdict(figure) for key, figure in revision.proof.figures().items()},
            "settings": {key: proofs.setting_record(setting) for key, setting in revision.settings.items()},
        }
        for name, revision in plan.named.items()
    }
    placement = proofs.placement(plan)
    warnings = warned.records(plan.warnings, plan.file, project)
    uncertain = [name for name, model_record in models.items() if model_record["verdict"] == "uncertain"]
    full = proofs.lacks_room(plan)
    record: dict[str, Any] = {
        "holds": not uncertain and not full,
        "verdict": "fails" if full else "uncertain" if uncertain else "holds",
        "models": models,
        "placement": placement,
        "storage": {"block": plan.storage_text},
        "gateway": proofs.gateway(plan),
        "failover": {"block": describe_take_overs(plan.taken)},
        "limits": proofs.limits(plan),
        "warnings": warnings,
    }
    blocks = [str(model_record["block"]) for model_record in models.values()]
    if second:
        beside = [second_opinion.of_revision(revision) for revision in plan.revisions]
        for model_record, comparison in zip(models.values(), beside, strict=True):
            model_record["beside"] = comparison
        blocks = [
            f"{block}\n{second_opinion.lines(comparison)}" for block, comparison in zip(blocks, beside, strict=True)
        ]
        record["agrees"] = all(second_opinion.agrees(comparison) for comparison in beside)
    verdicts = _verdicts(len(models), len(uncertain))
    if full:
        verdicts += " by themselves; together THEY DO NOT FIT, as the last blocks show"
    elif models:
        verdicts += ", with room for all" if placement["known"] else "; whether they find room is not known"
    heading = "\n".join([f"site {name}: {verdicts}", *_short_of_replicas(placement), *warned.lines(plan, project)])
    rooms = [str(placement["block"])] if models else []
    parts = [str(record[part]["block"]) for part in ("gateway", "failover", "limits")]
    lines = [heading, *blocks, *rooms, *filter(None, [plan.storage_text, plan.scaling_text, *parts])]
    return Told(lines=lines, record=record, good=record.get("agrees", True) and not full)


def _short_of_replicas(placement: Mapping[str, Any]) -> list[str]:
    """Which models a lost node leaves with too few replicas, be it only until others have started."""
    losses = placement.get("lost_node", {}).values()
    short = {name for loss in losses for name in loss["missing"]}
    short |= {name for loss in losses for name, left in loss["meanwhile"].items() if left["verdict"] != "holds"}
    names = ", ".join(sorted(short))
    return [f"  lost node: too few replicas of {names} until others serve, as `placement` shows"] if short else []


def _verdicts(models: int, uncertain: int) -> str:
    """How many models hold, and how many are uncertain."""
    if not models:
        return "no models"
    hold = f"{counted(models - uncertain, 'model')} {'holds' if models - uncertain == 1 else 'hold'}"
    return f"{hold}, {uncertain} uncertain" if uncertain else hold
