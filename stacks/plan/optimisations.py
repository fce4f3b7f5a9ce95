"""What a site chooses to make a model faster or smaller: if it can be, in the proof's terms, and as vLLM's flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from components.models.weights import folder
from components.specs.model_server import ModelServerSpec, SpeculativeSpec
from components.specs.weights import DRAFT
from floor.problems import Path, Problem, shown
from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.facts.hardware import GPUS
from stacks.proof.layouts import Layout
from stacks.proof.speculation import Method, Speculation, Undraftable, why_unsuited
from stacks.proof.weights import parameters

# As vLLM 0.32 calls them (config/speculative.py).
_METHODS: Mapping[Method, str] = {"ngram": "ngram", "mtp": "mtp", "draft": "draft_model"}


def speculation_of(spec: SpeculativeSpec | None) -> Speculation | None:
    """What drafts, in the proof's terms."""
    if spec is None:
        return None
    return Speculation(
        method=spec.method,
        tokens=spec.tokens,
        acceptance=spec.acceptance,
        draft=catalogue.load(spec.catalogue) if spec.catalogue else None,
    )


def speculative_config(spec: SpeculativeSpec | None) -> dict[str, str | int]:
    """The object of vLLM's --speculative-config; empty without drafts."""
    if spec is None:
        return {}
    config: dict[str, str | int] = {"method": _METHODS[spec.method], "num_speculative_tokens": spec.tokens}
    if spec.catalogue:
        config["model"] = folder(DRAFT)
    return config


def refused(path: Path, server: ModelServerSpec, model: CatalogueModel, gpu: str | None = None) -> Iterator[Problem]:
    """What cannot be of a model's choices, at its keys below `path`, whatever its layout and load.

    gpu: None to leave the kind of GPU open.
    """
    if server.quantization:
        yield from _unquantisable((*path, "quantization"), server.quantization, model, gpu)
    if server.kv_offload_gib and model.task != "generate":
        yield Problem(
            path=(*path, "kv_offload_gib"),
            what=f"is for models that write answers, and {model.repository} keeps no cache of prefixes",
            got=shown(server.kv_offload_gib),
            fix="take it out",
        )
    if server.speculative and (speculation := speculation_of(server.speculative)):
        if unsuited := why_unsuited(model, speculation):
            here = (*path, "speculative", unsuited.key)
            yield _undraftable(here, unsuited, getattr(server.speculative, unsuited.key), model)
        if server.layout and server.layout.pipeline > 1:
            yield Problem(
                path=(*path, "layout", "pipeline"),
                what="vLLM does not start with speculative decoding and pipeline stages",
                got=shown(server.layout.pipeline),
                allowed="1",
                fix="write 1, or take server.speculative out",
            )


def unstreamable(path: Path, server: ModelServerSpec, model: CatalogueModel, layout: Layout) -> Iterator[Problem]:
    """Why the model's weights cannot be streamed onto this layout, at its key below `path`."""
    if server.loading != "streamer":
        return
    if any(flag.startswith("--load-format") for flag in model.engine_flags):
        yield Problem(
            path=(*path, "loading"),
            what=f"the files of {model.repository} are loaded in a form of their own, by its entry",
            got=shown(server.loading),
            fix="take it out",
        )
    elif layout.gpus > layout.tensor:
        yield Problem(
            path=(*path, "loading"),
            what=f"only ranks of one tensor-parallel group share a stream, and the layout is {layout}: "
            "every other rank would read all files by itself",
            got=shown(server.loading),
            allowed="default, lazy, eager, prefetch",
            fix="write default, or a layout with tensor alone",
        )


def _unquantisable(path: Path, method: str, model: CatalogueModel, gpu: str | None) -> Iterator[Problem]:
    stored = model.quantisation.format
    if stored != "none":
        what = f"quantises 16-bit weights, and the files of {model.repository} are quantised already ({stored})"
        yield Problem(path=path, what=what, got=shown(method), fix="take it out: vLLM loads them as they are")
    elif gpu is not None and "fp8" not in GPUS[gpu].flops:
        able = ", ".join(sorted(kind for kind, figures in GPUS.items() if "fp8" in figures.flops))
        what = f"needs FP8 units, and cluster.gpu, {gpu}, has none; with units: {able}"
        yield Problem(path=path, what=what, got=shown(method), fix="take it out")


def _undraftable(path: Path, unsuited: Undraftable, got: object, model: CatalogueModel) -> Problem:
    fix, allowed = "take server.speculative out", ""
    if model.task == "generate":
        match unsuited.key:
            case "method":
                fix = "write method: ngram, or draft with a small model of the same tokens"
            case "tokens":
                allowed = f"up to {model.draft_layers}, and multiples of it"
                fix = f"write {model.draft_layers}"
            case "catalogue":
                allowed = ", ".join(_drafts(model)) or "no entry of the catalogue"
                fix = "write one of these" if _drafts(model) else "write method: ngram and take catalogue out"
    return Problem(path=path, what=unsuited.why, got=shown(got), allowed=allowed, fix=fix)


def _drafts(model: CatalogueModel) -> list[str]:
    """Smaller entries that could draft for the model."""
    entries = ((name, catalogue.load(name)) for name in catalogue.names())
    size = parameters(model).total
    return [
        name
        for name, entry in entries
        if parameters(entry).total < size
        and why_unsuited(model, Speculation(method="draft", tokens=1, acceptance=0.0, draft=entry)) is None
    ]
