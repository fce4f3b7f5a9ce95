"""The one registry of settings: what follows from a proof, and whether the site's overrides are consistent with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from floor.problems import Problem
from floor.revision_ids import RevisionId
from stacks.plan.settings import engine, gateway, host, optimisations, progress, queue, scaling, start
from stacks.plan.settings.definition import Basis, Bounds, Definition, Serving, Setting
from stacks.proof.figures import shown
from stacks.proof.order import Given
from stacks.proof.proof import Proof

DEFINITIONS: Mapping[str, Definition] = {
    definition.key: definition
    for definition in (
        *engine.DEFINITIONS,
        *optimisations.DEFINITIONS,
        *queue.DEFINITIONS,
        *gateway.DEFINITIONS,
        *start.DEFINITIONS,
        *progress.DEFINITIONS,
        *host.DEFINITIONS,
        *scaling.DEFINITIONS,
    )
}
"""By key, each after those that it follows from."""


def derive(proof: Proof, serving: Serving | None = None) -> dict[str, Setting]:
    """All settings by key, in the registry's order. Of a proof that does not hold they are what was tried."""
    settled: dict[str, Setting] = {}
    basis = Basis(proof=proof, serving=serving or Serving(), settled=settled)
    for definition in DEFINITIONS.values():
        if (setting := definition.settle(basis)) is not None:
            settled[definition.key] = setting
    return settled


def broken_overrides(proof: Proof, serving: Serving) -> Iterator[Problem]:
    """Each setting that the site sets outside of what this proof allows, all at once. `proof` must hold.

    Of those in the order the proof itself refuses what the GPUs cannot do.
    """
    context = proof.order.context_tokens
    ordered = {"max_model_len": context} if isinstance(context, Given) else {}
    values = ordered | {key: override.value for key, override in serving.overrides.items()}
    for key in DEFINITIONS:
        value, bounds = values.get(key), DEFINITIONS[key].bounds
        if value is None or bounds is None:
            continue
        path = (*RevisionId.of(proof.order.name).path, "overrides", key)
        # Against what is derived with the other overrides in place: they are the site's wish as well.
        others = {name: other for name, other in serving.overrides.items() if name != key}
        free = derive(proof, replace(serving, overrides=others))
        if key not in free:
            model = proof.order.model
            yield Problem(
                path=path,
                what=f"{model.repository} has no such setting: its task is {model.task}",
                got=shown(value),
                allowed="nothing",
                fix="take it out",
            )
            continue
        limits = bounds(Basis(proof=proof, serving=serving, settled=free))
        if limits.low <= value <= limits.high:
            continue
        short = value < limits.low
        end = f"at least {shown(limits.low)}" if short else f"at most {shown(limits.high)}"
        instead = limits.instead_below if short else limits.instead_above
        yield Problem(
            path=path,
            what=limits.below if short else limits.above,
            got=f"{shown(value)} {free[key].unit}",
            allowed=_span(limits, end),
            fix=f"write {end}" + (f", or {instead}" if instead else ""),
        )


def _span(limits: Bounds, end: str) -> str:
    if limits.low == limits.high:
        return shown(limits.low)
    return f"from {shown(limits.low)} to {shown(limits.high)}" if math.isfinite(limits.high) else end
