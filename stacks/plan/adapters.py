"""Adapters of a model: whether it can have them, in the proof's terms, and as arguments of the engines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from components.models.weights import ADAPTERS
from components.specs.adapters import RANKS, AdapterSpec
from floor.problems import Path, Problem, nearest, shown
from stacks.facts.catalogue import CatalogueModel
from stacks.proof.adapters import Adapter, Adapters, adaptable


def adapters_of(specs: Mapping[str, AdapterSpec], places: int | None, skew: float) -> Adapters | None:
    """All of a model, in the proof's terms; None for none. places, skew: as the proof has them."""
    if not specs:
        return None
    loaded = tuple(Adapter(rank=spec.rank, modules=frozenset(spec.target_modules)) for _, spec in sorted(specs.items()))
    largest = max(adapter.rank for adapter in loaded)
    room = min(rank for rank in RANKS if rank >= largest)
    return Adapters(loaded=loaded, rank=room, places=places, skew=skew)


def adapter_modules(specs: Mapping[str, AdapterSpec]) -> list[str]:
    """What --lora-modules takes: one JSON object for each, in the order of their names."""
    return [json.dumps({"name": name, "path": f"{ADAPTERS}/{spec.revision}"}) for name, spec in sorted(specs.items())]


def unadaptable(path: Path, specs: Mapping[str, AdapterSpec], model: CatalogueModel) -> Iterator[Problem]:
    """Adapters that the model cannot have, at their keys below `path`."""
    if specs and model.task != "generate":
        yield Problem(
            path=path,
            what=f"are of models that write, and the task of {model.repository} is {model.task}",
            got=shown(sorted(specs)),
            fix="take them out",
        )
        return
    known = adaptable(model)
    for name, spec in sorted(specs.items()):
        for index, module in enumerate(spec.target_modules):
            if module in known:
                continue
            near = nearest(module, known)
            yield Problem(
                path=(*path, name, "target_modules", str(index)),
                what=f"is no projection of {model.repository} whose adapters the proof can count: those of attention "
                "with keys and values, and of layers without experts",
                got=shown(module),
                allowed=", ".join(known) or "none, as it has no such layers",
                near=near,
                fix=f"write {near}"
                if near
                else "take it out if its adapter_config.json names it by another of these, or "
                "merge the adapter into the weights and serve these as a model",
            )
