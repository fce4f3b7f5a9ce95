"""A model as the plan of its site deploys it: schedulers, pickers, bounds, tiers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import SitePlan
from stacks.proof.adapter_figures import copy_s
from stacks.proof.adapter_turns import turns
from stacks.proof.case import Case
from stacks.proof.front_end import FRONT_END
from stacks.whatif.outcome import Tier
from stacks.whatif.picker import PickingPlan
from stacks.whatif.places import PlacesPlan
from stacks.whatif.rank import RankPlan
from stacks.whatif.refusal import NoScenarioError
from stacks.whatif.room import RoomPlan
from stacks.whatif.scaler import ScaledCounts
from stacks.whatif.simulation import ServedModel
from stacks.whatif.steps import StepTime


def served_of(
    plan: SitePlan,
    revision: RevisionPlan,
    step_s: StepTime,
    tiers: Sequence[Tier],
    *,
    in_turn: bool = False,
    scaling: bool = True,
) -> ServedModel:
    """A revision as the plan's settings deploy it, on steps of `step_s`.

    scaling: whether its replicas follow the load where the site has them do so.
    """
    case, settings, pool = revision.proof.case, revision.settings, revision.spec.pool
    picker, ranks = revision.picker, case.layout.data
    rank = RankPlan(
        step_s=step_s,
        slots=settings["max_num_seqs"].whole,
        batched_tokens=settings["max_num_batched_tokens"].whole,
        prompt_step_tokens=case.order.prompt_step_tokens,
        cache_tokens=picker.kv_blocks * picker.block_tokens // ranks,
        asynchronous=case.replica.asynchronous,
        generates=case.order.model.task == "generate",
        speculation=case.order.speculation,
        places=_places_of(case),
    )
    room = {band.priority: band.requests for band in picker.bands}
    picking = PickingPlan(
        picking="in turn" if in_turn else "picker",
        pickers=pool.pickers,
        prefix_weight=pool.prefix_weight,
        queue_weight=pool.queue_weight,
        kv_weight=pool.kv_weight,
        adapter_weight=pool.adapter_weight if rank.places else 0.0,
        places=rank.places.places if rank.places else 0,
        queue_threshold=picker.queue_threshold,
        kv_threshold=picker.kv_threshold,
        shedding_threshold=picker.shedding_queue_threshold,
        metrics_interval_s=pool.metrics_interval_ms / 1e3,
        index_tokens=picker.kv_blocks * picker.block_tokens,
        room=tuple(room[tier.priority] for tier in tiers) if room else (),
    )
    return ServedModel(
        rank=rank,
        replicas=case.replicas,
        ranks=ranks,
        most_held=revision.server.engine_limit,
        envoys=plan.site.gateway.replicas,
        most_parallel=revision.parallel_requests,
        picking=picking,
        room=_room_of(plan, revision, tiers),
        sheddable=tuple(tier.priority < 0 for tier in tiers),
        front_end=FRONT_END,
        scaling=_scaling_of(revision) if scaling else None,
    )


def _places_of(case: Case) -> PlacesPlan | None:
    """None where no adapter of the model waits for a place."""
    adapters = case.order.adapters
    if adapters is None or turns(adapters) is None:
        return None
    return PlacesPlan(places=adapters.slots, load_s=copy_s(case, adapters))


def _room_of(plan: SitePlan, revision: RevisionPlan, tiers: Sequence[Tier]) -> RoomPlan | None:
    cache = plan.tenants.caches.get(revision.name)
    if cache is None or not cache.room:
        return None
    below = {name: spec.admitted_below for name, spec in plan.site.tiers.items()}
    shares = tuple(below.get(tier.name, 1.0) for tier in tiers)
    return RoomPlan(tokens=cache.room, answer_tokens=cache.expected, below=shares)


def _scaling_of(revision: RevisionPlan) -> ScaledCounts | None:
    """How its replicas follow the load; at the begin as many as the declared load makes it ask for."""
    case, plan = revision.proof.case, revision.server.scaling
    if plan is None:
        return None
    under_way = case.steady.running * case.schedulers if case.steady.stable else math.inf
    first = math.ceil(min(case.replicas, under_way / plan.requests))
    late = plan.first_token
    counts = ScaledCounts(
        # While requests come there is one.
        least=max(1, plan.least),
        most=plan.most,
        first=max(1, plan.least, first),
        requests=plan.requests,
        kv_share=plan.kv_share,
        seen_s=plan.seen_s,
        late_step=plan.late_step,
        window_s=plan.window_s,
        burst_s=plan.burst_s,
        step_s=plan.step_s,
        start_s=revision.proof.start_s(),
    )
    if late is None:
        return counts
    return replace(counts, first_token_s=late.seconds, first_token_share=late.share, fewest=late.fewest)


def tiers_of(plan: SitePlan, model: str, shares: Mapping[str, float]) -> tuple[Tier, ...]:
    """The tiers of the tenants that a model's replicas answer, the highest priority first. model: a revision's name.

    A site declares the load of a model and not who causes it: tenants have equal parts, unless `shares` has a tier's
    part. Raises NoScenarioError for shares above 1, or of all tiers and not 1.
    """
    answered = plan.site.answered_by(plan.named[model].id)
    tenants = [plan.site.tenants[tenant].tier or "" for tenant in answered] or [""]
    given = {tier: share for tier, share in shares.items() if tier in tenants}
    rest = [tier for tier in tenants if tier not in given]
    left = 1 - sum(given.values())
    if left < -1e-9 or (not rest and left > 1e-9):
        raise NoScenarioError(
            f"the shares of the tiers of {model} are {1 - left:g} together",
            allowed="at most 1, and 1 where every tier has one",
            fix="change --tier-share",
        )
    counted = {tier: left * rest.count(tier) / len(rest) for tier in rest} | given
    priorities = {name: spec.priority for name, spec in plan.site.tiers.items()}
    tiers = [Tier(name=name, priority=priorities.get(name, 0), share=share) for name, share in counted.items()]
    return tuple(sorted((tier for tier in tiers if tier.share > 0), key=lambda tier: (-tier.priority, tier.name)))
