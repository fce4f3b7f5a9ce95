"""`whatif`: what a spike, a lost node or other prompts would do to a site, simulated from its file."""

from __future__ import annotations

from pathlib import Path

import click

from sitectl.offline.planned import plan_of
from sitectl.output import whatif, whatif_plot
from sitectl.shell.command import PATH, Command, CommandContext, FiniteRange, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.whatif.refusal import NoScenarioError
from stacks.whatif.scenario import LONG_TAIL, SPIKE_S, WORST, Scenario
from stacks.whatif.twin import outcome_of

MORE = """\
Requests of the declared load go one by one through gateway, picker and schedulers as the site's settings make them, on
the proof's step times. Every figure is estimated; the same seed gives the same figures. Without a change, the site as
it is declared. Changes add up.

\b
  python -m sitectl whatif berlin --spike 20
  python -m sitectl whatif berlin --lose-node
  python -m sitectl whatif berlin --lose-gpus 8 --model chat
  python -m sitectl whatif berlin --prefix-hit 0.2 --long-prompts
  python -m sitectl whatif berlin --spike 20 --plot spike.svg

exit status 0: every target is kept, or kept in a part of the band of the model's speed, which makes it uncertain. 1: a
model misses a target in the scenario even at the fast end of that band, or more than 0.1 % of the requests of a tier
with a priority from 0 on are refused there; or the site is not valid. 2: the command line is wrong, or names a model, a
node or a tier that the site does not have. 3: --plot without matplotlib.
"""


def _shares(
    context: click.Context,  # noqa: ARG001 - click's form
    option: click.Parameter,
    values: tuple[str, ...],
) -> dict[str, float]:
    """TIER=SHARE of --tier-share."""
    shares: dict[str, float] = {}
    for value in values:
        tier, _, share = value.partition("=")
        try:
            shares[tier] = float(share)
        except ValueError:
            raise click.BadParameter(f"'{value}' is not TIER=SHARE, such as batch=0.8", param=option) from None
        if not 0 <= shares[tier] <= 1:
            raise click.BadParameter(f"'{value}' is not a share from 0 to 1", param=option)
    return shares


@click.command(cls=Command, epilog=MORE)
@click.argument("site", metavar="SITE", shell_complete=site_names, help="which site")
@click.option(
    "--spike",
    type=FiniteRange(min=0, min_open=True),
    metavar="TIMES",
    help="the load is so many times the declared one for a while, by new conversations",
)
@click.option(
    "--spike-s",
    type=FiniteRange(min=1, max=3600),
    default=SPIKE_S,
    show_default=True,
    metavar="SECONDS",
    help="how long the spike lasts",
)
@click.option(
    "--lose-node",
    is_flag=False,
    flag_value=WORST,
    metavar="[NAME]",
    help="a node with GPUs is lost; without a name the one whose failure takes most. Write SITE before it",
)
@click.option(
    "--lose-gpus",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="each model loses so many GPUs for good, in whole replicas, as if all were its own",
)
@click.option(
    "--prefix-hit",
    type=FiniteRange(min=0, max=1),
    metavar="SHARE",
    help="share of the prompts' tokens that an earlier prompt had, instead of the declared one",
)
@click.option(
    "--long-prompts",
    is_flag=True,
    help=f"the prompts' p95 is {LONG_TAIL:g} times the declared one, up to the longest context; their median stays",
)
@click.option("--round-robin", is_flag=True, help="replicas are taken in turn instead of by the endpoint picker")
@click.option("--no-scaling", is_flag=True, help="all replicas that the site declares serve, whatever the load is")
@click.option(
    "--tier-share",
    multiple=True,
    callback=_shares,
    metavar="TIER=SHARE",
    help="share of each model's requests that a tier has (default: equal shares of the tenants)",
)
@click.option("--model", "models", multiple=True, metavar="NAME", help="this model alone (default: all)")
@click.option("--seed", type=int, default=1, show_default=True, help="another one gives other requests")
@click.option(
    "--plot", type=PATH, metavar="FILE", help="also write requests under way as .svg or .png; needs matplotlib"
)
@pass_context
def command(
    context: CommandContext,
    *,
    site: str,
    spike: float | None,
    spike_s: float,
    lose_node: str | None,
    lose_gpus: int | None,
    prefix_hit: float | None,
    long_prompts: bool,
    round_robin: bool,
    no_scaling: bool,
    tier_share: dict[str, float],
    models: tuple[str, ...],
    seed: int,
    plot: Path | None,
) -> int:
    scenario = Scenario(
        spike=spike,
        spike_s=spike_s,
        lose_node=lose_node,
        lose_gpus=lose_gpus,
        prefix_hit=prefix_hit,
        long_prompts=long_prompts,
        in_turn=round_robin,
        scaling=not no_scaling,
        tier_shares=tier_share,
        seed=seed,
    )
    plan = plan_of(context.project, site)
    if plot:
        whatif_plot.require(plot)
    try:
        outcome = outcome_of(plan, scenario, models=models, layer=context.progress.layer)
    except NoScenarioError as error:
        raise SitectlError.of(error.problem, Exit.USAGE) from None
    if plot:
        whatif_plot.write(outcome, context.folder / plot)
    context.say(whatif.text(outcome), whatif.record(outcome))
    return int(Exit.REFUSED if outcome.verdict == "fails" else Exit.OK)
