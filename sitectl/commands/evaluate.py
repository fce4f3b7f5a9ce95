"""`evaluate`: whether a model's canary answers a set of questions as well as its stable revision."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import click

from sitectl.live import evaluation, site_cluster
from sitectl.live.evaluation import AskedRevision, EvaluationSet
from sitectl.offline import checkout
from sitectl.output.columns import columns
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.facts.records import read_facts
from stacks.plan.site_plan import SitePlan, plan_file

PAGE = "docs/how-to/try-a-revision.md"
MORE = f"""\
\b
  python -m sitectl evaluate prod qwen3-32b questions.yaml

Asks each question of both revisions by the gateway, as a tenant that is pinned to the stable one and as a tenant that
is pinned to the canary, and holds the answers against what the file expects: texts, JSON, calls of tools, reasoning.
The tenants' keys come from the stack's state. {PAGE} has an example of the file.

exit status 1: the canary has fewer good answers than the stable revision, by more than --allow.
"""


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.argument("model", help="a model with a canary")
@click.argument("file", type=PATH, help="the questions, YAML")
@click.option("--allow", default=0, show_default=True, metavar="N", help="good answers that the canary may have less")
@click.option("--endpoint-ca", type=PATH, metavar="FILE", help="CA of the endpoint's certificate, in PEM")
@pass_context
def command(context: CommandContext, *, site: str, model: str, file: Path, allow: int, endpoint_ca: Path | None) -> int:
    cases = read_facts(file, EvaluationSet).cases
    clients = _clients(plan_file(checkout.site_files(context.project, [site])[site]), site, model)
    outputs = site_cluster.pulumi(context.project, site, "stack", "output", "--show-secrets", "--json")
    trust = ssl.create_default_context(cafile=endpoint_ca)
    lacking: dict[str, dict[str, str]] = {}
    for name, client in clients.items():
        revision = AskedRevision(name=name, client=client, key=_key(outputs, site, client))
        with context.progress.layer(f"ask {name}, {len(cases)} questions"):
            lacking[name] = evaluation.answers(f"{outputs['endpoint']}/", model, revision, cases, trust)
    stable, canary = lacking.values()
    lost = [case for case in stable if canary[case] and not stable[case]]
    good = {name: sum(not lack for lack in answers.values()) for name, answers in lacking.items()}
    of_stable, of_canary = good.values()
    rows = [("QUESTION", *lacking), *((case, stable[case] or "good", canary[case] or "good") for case in stable)]
    summary = ", ".join(f"{count} of {len(cases)} good on {name}" for name, count in good.items())
    text = "\n".join([*columns(rows), summary + (f"; lost: {', '.join(lost)}" if lost else "")])
    context.say(text, {"site": site, "model": model, "good": good, "lost": lost, "answers": lacking})
    return int(Exit.REFUSED if of_stable - of_canary > allow else Exit.OK)


def _clients(plan: SitePlan, site: str, model: str) -> dict[str, str]:
    """Revision -> a client that always has it, the stable one first."""
    planned = plan.models.get(model)
    spec = planned.stable.spec.canary if planned else None
    if planned is None or planned.canary is None or spec is None:
        raise SitectlError(f"no model {model} of {site} has a canary", fix=f"see {PAGE}", status=Exit.REFUSED)
    chosen = {}
    for name, pinned in ((model, "stable"), (planned.canary.name, "canary")):
        clients = [
            f"{tenant}.{purpose}"
            for tenant, revision in sorted(spec.pinned.items())
            if revision == pinned
            for purpose, key in sorted(plan.site.tenants[tenant].keys.items())
            if key.sha256 is None
        ]
        if not clients:
            raise SitectlError(
                f"no tenant with a key in the file of {site} is pinned to the {pinned} revision of {model}",
                fix=f"add one to models.{model}.canary.pinned, as TENANT: {pinned}",
                status=Exit.REFUSED,
            )
        chosen[name] = clients[0]
    return chosen


def _key(outputs: dict[str, Any], site: str, client: str) -> str:
    try:
        return str(outputs["keys"][client])
    except KeyError:
        raise SitectlError(f"the stack {site} has no key of {client} yet", fix="run pulumi up") from None
