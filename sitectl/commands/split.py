"""`split`: a model's prompts and answers on replicas of their own, as objects for llm-d's router."""

from __future__ import annotations

import click

from policy.model import Resource
from sitectl.commands.advise import only_site
from sitectl.commands.catalogue import model_names
from sitectl.offline.manifests_folder import rendered
from sitectl.offline.planned import plan_of
from sitectl.shell.command import Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.advice import split_line
from stacks.proof.split_verdict import compare

MORE = """\
Nothing that this platform deploys, and none of it ran: a draft for those who want to build it. It takes the place of
the model's Deployment, pool and picker; volume, weights, route and budget stay as `render` has them. Sizes are those of
the proof's estimate, for the declared load and targets without a spare replica.

\b
  python -m sitectl split --site prod qwen3-32b

exit status 1: no split carries the load, or none is needed; the reasons are in the message
"""
NOT_RUN = "NOT RUN: no site deploys these objects, and none of them ran on a GPU."


@click.command(cls=Command, epilog=MORE)
@click.argument("model", shell_complete=model_names, help="a model of the site")
@click.option("--site", metavar="SITE", shell_complete=site_names, help="which site (default: the only one)")
@pass_context
def command(context: CommandContext, /, *, model: str, site: str | None) -> int:
    """Print a split of prefill and decode as objects that no site deploys."""
    name = site or only_site(context.project)
    plan = plan_of(context.project, name)
    if model not in plan.models:
        allowed = ", ".join(plan.models)
        raise SitectlError("no model of the site", got=model, allowed=allowed, fix="name one", status=Exit.USAGE)
    revision = plan.models[model].stable
    if revision.spec.server.engine != "vllm":
        what = f"{model} is served by a simulator, which passes no cache to another"
        raise SitectlError(what, fix="name a model that vLLM serves", status=Exit.REFUSED)
    with context.progress.layer(f"prove {model}"):
        verdict = compare(revision.proof.order)
    if verdict is None:
        raise SitectlError(
            f"no split of {model} can be computed: it has no load, writes no answers, or has a slice of a GPU",
            fix=f"set models.{model}.load",
            status=Exit.REFUSED,
        )
    if verdict.split is None:
        raise SitectlError(f"no split of {model}: {verdict.reasons}", fix="leave it as it is", status=Exit.REFUSED)
    from stacks.plan.split_pools import objects_of  # noqa: PLC0415 - builders are beside components of the engine's SDK

    objects = objects_of(plan, revision, verdict.split)
    lines = [f"# {NOT_RUN}", f"# {split_line(verdict)}"]
    for body in objects:
        declared = Resource(type=f"kubernetes:{body['apiVersion']}:{body['kind']}", name=model, body=body)
        lines += ["---", rendered(declared).rstrip()]
    context.say("\n".join(lines), {"note": NOT_RUN, "objects": objects})
    return int(Exit.OK)
