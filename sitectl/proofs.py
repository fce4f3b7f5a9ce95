"""The proofs of a site's models, for the commands that show them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stacks.loader import load_file
from stacks.loading.problems import SiteError
from stacks.proof.figures import Explanation, Figure
from stacks.rendered_knobs import effect
from stacks.site import SiteConfig
from stacks.sizing import describe, explain_knobs, prove_model


def blocks(site: SiteConfig) -> list[str]:
    """One block of text for each model, by name."""
    return [describe(prove_model(site, spec, name)) for name, spec in sorted(site.models.items())]


def blocks_of_file(file: Path) -> list[str]:
    """The same for a stack file; nothing for one that is not valid, which the engine tells with all its mistakes."""
    try:
        return blocks(load_file(file))
    except SiteError:
        return []


def figures(site: SiteConfig, model: str) -> Mapping[str, Figure]:
    """Every figure of one model's proof."""
    return prove_model(site, site.models[model], model).figures()


def explanations(site: SiteConfig, model: str) -> Mapping[str, Explanation]:
    """Every setting that follows from one model's proof."""
    return explain_knobs(site, site.models[model], model)


def told(knob: Explanation) -> dict[str, str]:
    """A setting in words: value, where it comes from, formula, inputs, and what is made of it, or why nothing is."""
    record = {
        "knob": knob.key,
        "value": f"{knob.value} {knob.unit}".rstrip(),
        "origin": knob.origin,
        "formula": knob.formula,
        "inputs": ", ".join(f"{name} = {value}" for name, value in knob.inputs.items()),
        "reason": knob.reason,
        "rendered": effect(knob.key),
    }
    return {key: value for key, value in record.items() if value}
