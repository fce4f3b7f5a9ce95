"""The twin of a site: its plan as a simulation, as declared and in a scenario."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import SitePlan
from stacks.proof import money
from stacks.proof.adapter_turns import asked_shares
from stacks.proof.demand import Load
from stacks.proof.figures import Figure
from stacks.proof.serving import PATH_S, REQUEST_OVERHEAD_S
from stacks.whatif.deployment import served_of, tiers_of
from stacks.whatif.losses import LostReplicas, losses_of
from stacks.whatif.outcome import Column, ModelOutcome, SiteOutcome, tier_outcome
from stacks.whatif.refusal import NoScenarioError, no_such
from stacks.whatif.scenario import Scenario
from stacks.whatif.schedule import AFTER_S, Schedule, schedule_of
from stacks.whatif.simulation import LISTED_S, Outage, Run, Simulation
from stacks.whatif.steps import step_times
from stacks.whatif.tally import Counts, together
from stacks.whatif.traffic import Surge, Traffic

# Until a lost node's replicas start elsewhere: Kubernetes notices, and evicts after the toleration that it gives every
# pod (300 s). Both are its defaults, which the platform leaves alone.
GONE_S = LISTED_S + 300.0
# Of a larger model that loses none, so many replicas are simulated, with their part of the load.
MOST_REPLICAS = 24
# Of one model and spike: a minute or two of simulation.
MOST_REQUESTS = 2_000_000


def outcome_of(
    plan: SitePlan,
    scenario: Scenario,
    *,
    models: tuple[str, ...] = (),
    layer: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    most_replicas: int = MOST_REPLICAS,
) -> SiteOutcome:
    """Simulate the models of a site, all of them without `models`; no canaries. Raises NoScenarioError.

    layer: entered around each step of the work, with its name. most_replicas: of one model that are simulated.
    """
    known = [name for name, revision in plan.named.items() if not revision.id.digest]
    if unknown := sorted(set(models) - set(known)):
        raise no_such("model", unknown, known)
    if unknown := sorted(set(scenario.tier_shares) - set(plan.site.tiers)):
        raise no_such("tier", unknown, list(plan.site.tiers))
    scenario, losses = losses_of(plan, scenario)
    outcomes, skipped = [], {}
    for name in models or known:
        revision = plan.named[name]
        if revision.proof.order.load is None:
            skipped[name] = f"it declares no load; set {'.'.join(revision.id.path)}.load"
            continue
        _simulable(name, revision.proof.order.load, scenario, min(1.0, most_replicas / revision.proof.case.replicas))
        with layer(f"simulate {name}"):
            lost = losses.get(name, LostReplicas())
            outcomes.append(_model_outcome(plan, revision, scenario, lost, most_replicas))
    return SiteOutcome(
        site=plan.site.name, words=scenario.words, seed=scenario.seed, models=tuple(outcomes), skipped=skipped
    )


def _simulable(name: str, load: Load, scenario: Scenario, part: float) -> None:
    """Raises NoScenarioError for a spike whose requests would take more than some minutes to simulate."""
    declared = load.requests_per_s * scenario.spike_s * part
    requests, times = declared * (scenario.spike or 0.0), MOST_REQUESTS / declared
    if requests > MOST_REQUESTS:
        raise NoScenarioError(
            f"the spike is more requests of {name} than can be simulated",
            got=f"{requests:,.0f}",
            allowed=f"up to {MOST_REQUESTS:,}",
            fix=f"a spike of at most {times:.3g} times for {scenario.spike_s:g} s, or a shorter one",
        )


def _model_outcome(
    plan: SitePlan, revision: RevisionPlan, scenario: Scenario, lost: LostReplicas, most_replicas: int
) -> ModelOutcome:
    case, band = revision.proof.case, revision.proof.ends.band
    twin = ModelTwin(plan, revision, scenario.tier_shares, most_replicas=most_replicas)
    declared = twin.column(Scenario(seed=scenario.seed), LostReplicas())
    changed = twin.column(scenario, lost) if scenario.changes else None
    end = None
    if case.order.slo.targets:
        # A slower engine keeps no target that a faster one misses, so one end decides.
        pace = band.high if (changed or declared).kept else band.low
        end = ModelTwin(plan, revision, scenario.tier_shares, pace, most_replicas).column(scenario, lost)
    return ModelOutcome(
        model=revision.name,
        replicas=case.replicas,
        layout=str(case.layout),
        gpu=case.order.gpu,
        gpus=case.gpus,
        targets=case.order.slo.targets,
        declared=declared,
        scenario=changed,
        end=end,
    )


class ModelTwin:
    """One revision of a model, ready to be simulated."""

    def __init__(
        self,
        plan: SitePlan,
        revision: RevisionPlan,
        shares: Mapping[str, float],
        pace: float = 1.0,
        most_replicas: int = MOST_REPLICAS,
    ) -> None:
        """pace: factor on the time of every step."""
        load = revision.proof.order.load
        if load is None:
            raise ValueError("no load is declared")
        self._plan, self._revision, self._load = plan, revision, load
        self._case, self._pace = revision.proof.case, pace
        self._most_replicas = most_replicas
        self._step_s = step_times(self._case.roofline.at(pace), self._case.layout.pipeline)
        self._tiers = tiers_of(plan, revision.name, shares)
        adapters = self._case.order.adapters
        self._adapters = asked_shares(len(adapters.loaded), adapters.skew) if adapters else []

    def column(self, scenario: Scenario, lost: LostReplicas) -> Column:
        """Simulate it."""
        part = 1.0 if lost.count else min(1.0, self._most_replicas / self._case.replicas)
        load = scenario.load(self._load)
        load = replace(load, requests_per_s=load.requests_per_s * part)
        served = served_of(
            self._plan,
            self._revision,
            self._step_s,
            self._tiers,
            in_turn=scenario.in_turn,
            scaling=scenario.scaling,
        )
        parallel = self._revision.parallel_requests
        if part < 1 and served.scaling:
            raise NoScenarioError(
                f"{served.replicas} replicas of {self._revision.name} that scale are more than can be simulated",
                allowed=f"up to {self._most_replicas}",
                fix="simulate it with --no-scaling",
            )
        served = replace(served, replicas=round(served.replicas * part), most_parallel=math.ceil(parallel * part))
        outage_s = GONE_S + self._revision.proof.start_s(max(1, lost.returning))
        answer_s = load.answer_tokens.p95 * self._case.token_s(self._case.slots) * self._pace
        times = schedule_of(load, scenario, lost, answer_s=answer_s, outage_s=outage_s)
        surge = None
        if scenario.spike is not None:
            surge = Surge(begins_s=times.change_s, lasts_s=scenario.spike_s, times=scenario.spike)
        runs = []
        for number in range(times.runs):
            seed = f"{scenario.seed} {self._revision.name} {number}"
            shares = [tier.share for tier in self._tiers]
            simulation = Simulation(
                served,
                Traffic(
                    load, context=self._case.context, seed=seed, shares=shares, surge=surge, adapters=self._adapters
                ),
                seed=seed,
                borders_s=(times.change_s, times.end_s),
                outages=_outages(lost, times.change_s, outage_s),
                change_s=times.change_s,
                settled_s=times.settled_s,
            )
            runs.append(simulation.run(times.until_s, calm_after_s=times.end_s, drain_s=AFTER_S))
        paid = sum(run.replica_s for run in runs) / sum(run.lasted_s for run in runs) / served.replicas
        # Rates of a part are those of the whole, seen for a shorter time.
        column = self._column(runs, times.measured_s * part, times, paid)
        figures, notes = dict(column.figures), []
        if scenario.spike is not None or lost.count:
            figures["recovery"] = _recovery(runs, times, lost)
        if scaling := served.scaling:
            notes.append(
                f"of {scaling.least} to {scaling.most} replicas {scaling.first} at the begin, "
                f"{max(run.most_replicas for run in runs)} at most, {paid * served.replicas:.3g} on average"
            )
        if part < 1:
            notes.append(
                f"{served.replicas} of {self._case.replicas} replicas are simulated, with their part of the load"
            )
        return replace(column, figures=figures, replicas=self._case.replicas - lost.count, notes=tuple(notes))

    def _column(self, runs: Sequence[Run], lasted_s: float, times: Schedule, paid: float) -> Column:
        """paid: part of the declared replicas that there were."""
        by_tier = [together(run.tally.counts[1][place] for run in runs) for place in range(len(self._tiers))]
        targets, path_s = self._case.order.slo.targets, PATH_S + REQUEST_OVERHEAD_S
        tiers = [
            tier_outcome(counts, tier, targets, lasted_s=lasted_s, path_s=path_s)
            for tier, counts in zip(self._tiers, by_tier, strict=True)
        ]
        return Column(
            by_tier=tuple(tiers),
            figures=self._figures(together(by_tier), lasted_s, paid),
            replicas=self._case.replicas,
            trace=tuple((second - times.change_s, count) for second, count in runs[0].trace),
        )

    def _figures(self, counts: Counts, lasted_s: float, paid: float) -> dict[str, Figure]:
        rate, writes = counts.answer_tokens / lasted_s, self._case.order.model.task == "generate"
        # An embedding or a rank is one answer.
        figures = {
            "answer_tokens_per_s": Figure(
                value=rate,
                unit="tokens/s" if writes else "answers/s",
                source=f"{'answer tokens' if writes else 'answers'} / simulated time",
                fidelity="estimated",
            )
        }
        prices = self._case.order.prices
        if prices is None:
            return figures
        hour = money.hourly(self._case, prices) * paid
        figures["hour"] = Figure(
            value=hour,
            unit=f"{prices.currency}/h",
            source="GPUs x (price + power x kWh price); lost GPUs are paid too",
            fidelity="estimated",
        )
        if rate and writes:
            figures["per_million"] = Figure(
                value=hour / 3600 / rate * 1e6,
                unit=f"{prices.currency}/M answer tokens",
                source="bill / (answer tokens/s x 3600), all of it on the answers",
                fidelity="estimated",
            )
        return figures


def _outages(lost: LostReplicas, begins_s: float, outage_s: float) -> tuple[Outage, ...]:
    returning, rest = tuple(range(lost.returning)), tuple(range(lost.returning, lost.count))
    outages = [
        Outage(begins_s=begins_s, ends_s=begins_s + outage_s, replicas=returning),
        Outage(begins_s=begins_s, ends_s=math.inf, replicas=rest),
    ]
    return tuple(outage for outage in outages if outage.replicas)


def _recovery(runs: Sequence[Run], times: Schedule, lost: LostReplicas) -> Figure:
    """Seconds after the end of a spike, or after a loss; infinite for replicas that stay away."""
    source = "until no more requests are under way than at the busiest moment before; the longest of all runs"
    seconds = math.inf
    # What is left behind by replicas that stay away may be calm at once, which is no recovery.
    if not lost.for_good or times.settled_s > times.change_s:
        from_s = times.change_s if lost.returning else times.settled_s
        seconds = max(0.0, max(run.calm_again_s for run in runs) - from_s)
    return Figure(value=seconds, unit="s", source=source, fidelity="estimated")
