"""What alerts hold the site to: the figures of its plan that a running platform can be compared with."""

from __future__ import annotations

from collections.abc import Sequence

from components.specs.promises import HISTOGRAMS, LatencyPromise, ModelPromise, SitePromise
from stacks.facts import metrics
from stacks.facts.hardware import GPUS
from stacks.plan.guarantees import request_tokens
from stacks.plan.models import RevisionPlan
from stacks.plan.placing import nodes_of, resource_of
from stacks.plan.site_plan import SitePlan
from stacks.proof.demand import LatencyTarget
from stacks.proof.proof import Proof


def site_promise(plan: SitePlan, availability_percent: float, jobs: Sequence[str]) -> SitePromise:
    """Of every revision, the nodes and the tenants. jobs: that must have a target."""
    nodes = nodes_of(plan.site) or []
    kinds = {node.gpu for node in nodes} | {proof.order.gpu for proof in plan.proofs.values()}
    return SitePromise(
        models=tuple(model_promise(revision) for revision in plan.revisions),
        availability_percent=availability_percent,
        node_gpus={node.name: node.gpus for node in nodes},
        slices={resource_of(kind): GPUS[kind].share for kind in sorted(kinds) if GPUS[kind].share < 1},
        tiers={name: tenant.tier or "none" for name, tenant in plan.site.tenants.items()},
        jobs=tuple(jobs),
    )


def model_promise(revision: RevisionPlan) -> ModelPromise:
    """What the site declares of a revision, and what its proof promises."""
    order, case = revision.proof.order, revision.proof.case
    return ModelPromise(
        model=revision.name,
        targets=tuple(latency_promise(target) for target in order.slo.targets),
        itl_mean_s=_slowest_itl_s(revision.proof) if order.model.task == "generate" else None,
        requests_per_s=order.load.requests_per_s if order.load else None,
        replicas=case.replicas,
        gpus=case.gpus * order.hardware.share,
        start_budget_s=revision.server.start_budget_s,
        stall_s=revision.engine.stall_s,
        weights_budget_s=revision.weights.budget_s if revision.weights else 0,
        nodes=revision.server.nodes,
        carried_tokens_per_s=revision.proof.capacity_requests_per_s * request_tokens(revision.proof),
        shedding_queue=revision.picker.shedding_queue_threshold,
    )


def latency_promise(target: LatencyTarget) -> LatencyPromise:
    """The target, and up to where the engine counts what is within it."""
    seconds = target.ms / 1e3
    bounds = metrics.load()["vllm"].bounds[HISTOGRAMS[target.metric][0]]
    bound_s = next((bound for bound in bounds if bound >= seconds), None)
    return LatencyPromise(metric=target.metric, percentile=target.percent, seconds=seconds, bound_s=bound_s)


def _slowest_itl_s(proof: Proof) -> float:
    """Mean seconds between tokens at the slow end of the band: under the declared load, else of a full batch."""
    mean = proof.serving.get("itl_mean")
    if mean is None or mean.span is None or mean.span.slow is None:
        return proof.speed["decode_full"].value * proof.ends.band.high / 1e3
    return mean.span.slow / 1e3
