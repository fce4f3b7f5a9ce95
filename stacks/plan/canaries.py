"""Who is answered by a model's canary and by its dedicated replicas, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from floor.counts import counted, listed
from floor.revision_ids import RevisionId
from stacks.plan.models import ModelPlan, RevisionPlan
from stacks.proof.case import Case
from stacks.proof.proof import Proof

_TTFT = "ttft_p95"
_WHILE_AWAY = {"refuse": "they get 503", "shared": "those of all others answer"}


def describe_canaries(models: Mapping[str, ModelPlan]) -> str:
    """A block with each model that has a canary; empty without any."""
    lines = [line for model in models.values() for line in _of_model(model)]
    return "\n".join(["canaries:", *(f"  {line}" for line in lines)]) if lines else ""


def describe_dedicated(models: Mapping[str, ModelPlan]) -> str:
    """A block with each group of dedicated replicas; empty without any."""
    lines = [
        f"  {model.name}: {listed(sorted(group.tenants)) or 'no tenant'} {'have' if len(group.tenants) > 1 else 'has'} "
        f"{counted(group.server.replicas, 'replica')} of {RevisionId(model.name, group=name).name}; while none is "
        f"ready, {_WHILE_AWAY[group.when_away]}"
        for model in models.values()
        for name, group in sorted(model.stable.spec.dedicated.items())
    ]
    return "\n".join(["dedicated:", *lines]) if lines else ""


def cold(proof: Proof) -> Proof | None:
    """The proof of replicas whose prefix caches are empty; None without a load, or one that counts on no cache."""
    load = proof.order.load
    if load is None or not load.prefix_hit:
        return None
    empty = replace(proof.order, load=replace(load, prefix_hit=0.0))
    return Proof(Case(empty, proof.case.layout, proof.case.replicas))


def _of_model(model: ModelPlan) -> Iterator[str]:
    canary, spec = model.canary, model.stable.spec.canary
    if canary is None or spec is None:
        return
    whole = "sessions" if spec.sticky == "session" else "tenants"
    yield f"{model.name}: {spec.percent} % of its {whole} are served by {canary.name}{_pinned(spec.pinned)}"
    if (text := _first_minutes(canary)) is not None:
        yield f"  {text}"


def _pinned(pinned: Mapping[str, str]) -> str:
    texts = []
    for revision, called in (("stable", "stable one"), ("canary", "canary")):
        if names := sorted(tenant for tenant, has in pinned.items() if has == revision):
            texts.append(f"; {listed(names)} {'stays' if len(names) == 1 else 'stay'} on the {called}")
    return "".join(texts)


def _first_minutes(canary: RevisionPlan) -> str | None:
    """A session that moves to it finds nothing of its prompts there."""
    first = cold(canary.proof)
    if first is None:
        return None
    if not first.serving:
        return "with an empty cache it does not keep up with its share; take smaller steps"
    misses = "" if first.verdict == "holds" else ", which may miss the targets; take smaller steps"
    figure, usual = first.serving[_TTFT], canary.proof.serving[_TTFT]
    return f"with an empty cache, in its first minutes: TTFT p95 {figure}, {usual} later{misses}  [{figure.fidelity}]"
