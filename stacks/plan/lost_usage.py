"""What faults take of the rows that tenants are billed by, as text for people.

A line is written when its request is over, so a killed Envoy loses what it had not written and the requests that were
open; a lost node also what was not sent yet. What is open usually is the declared load times how long a request takes,
its wait and its prompt included (Little's law). While the ledger is away, lines wait on a volume of the pod, which has
room for a day of them; what comes then is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.ledger import variables
from stacks.plan.models import ModelPlan, RevisionPlan, declared_loads
from stacks.proof.demand import Load
from stacks.proof.figures import shown
from stacks.site.model import SiteConfig

HELD_H = 24
"""Hours for which lines have room: a database that fails in the evening may be restored in the morning."""
LINE_BYTES = 700
"""Of a line, estimated: those of the lab's gateway pods, with longer names."""


@dataclass(frozen=True, kw_only=True)
class LostUsage:
    """Of one of the gateway's pods."""

    open_most: int
    """Requests that it lets through at once."""
    open_usual: float
    requests_per_s: float
    tokens_usual: float
    """Of a mean request, whole."""
    log_gib: int
    """Room for the lines that wait."""
    log_hours: float
    """How long these take to fill it, while another pod is away."""


def log_gib(site: SiteConfig, models: Mapping[str, ModelPlan]) -> int:
    """Of the volume of a pod's log. In few sizes: each other one replaces the gateway's pods."""
    needed, size = HELD_H * _bytes_per_h(site, models), 1
    while variables.most_log_bytes(size) < needed:
        size *= 2
    return size


def _bytes_per_h(site: SiteConfig, models: Mapping[str, ModelPlan]) -> float:
    """What a pod writes at the declared load while another one is away."""
    rate = sum(load.requests_per_s for _, load in declared_loads(models))
    return rate / max(1, site.gateway.replicas - 1) * LINE_BYTES * 3600


def loss_of_a_pod(site: SiteConfig, models: Mapping[str, ModelPlan]) -> LostUsage | None:
    """None without a ledger, and where no model declares a load."""
    revisions = [revision for model in models.values() for revision in model.revisions.values()]
    loads = declared_loads(models)
    if not site.has_ledger or not loads:
        return None
    pods, rate = site.gateway.replicas, sum(load.requests_per_s for _, load in loads)
    return LostUsage(
        open_most=sum(revision.parallel_requests for revision in revisions),
        open_usual=sum(_open(revision, load) for revision, load in loads) / pods,
        requests_per_s=rate / pods,
        tokens_usual=sum(load.requests_per_s * load.request_tokens for _, load in loads) / rate,
        log_gib=(size := log_gib(site, models)),
        log_hours=variables.most_log_bytes(size) / _bytes_per_h(site, models),
    )


def _open(revision: RevisionPlan, load: Load) -> float:
    case, serving = revision.proof.case, revision.proof.serving
    if not serving:
        return 0.0
    return load.requests_per_s * serving["ttft_mean"].value / 1000 + case.steady.running * case.schedulers


def describe_lost_usage(site: SiteConfig, models: Mapping[str, ModelPlan]) -> str:
    """Empty where nothing is known of it."""
    loss = loss_of_a_pod(site, models)
    if loss is None:
        return ""
    unwritten, unsent = (loss.requests_per_s * s for s in (variables.FLUSH_S, variables.LOOK_EVERY_S))
    usual = loss.open_usual + unwritten
    return "\n".join(
        [
            "usage: rows that a fault takes from the ledger, at the declared load; others, none",
            f"  Envoy killed    its {loss.open_most:,} open requests at most, usually {shown(loss.open_usual)}, and "
            f"{shown(unwritten)} of its last {variables.FLUSH_S:g} s: {shown(usual * loss.tokens_usual)} tokens  "
            "[estimated]",
            f"  its node lost   {shown(unsent)} more, not sent yet; while the ledger is away, all since then  "
            "[estimated]",
            f"  ledger away     none for {shown(loss.log_hours)} h, which fill {loss.log_gib} GiB of its node's disk, "
            f"{LINE_BYTES} bytes each, with one pod fewer; then all  [estimated]",
        ]
    )
