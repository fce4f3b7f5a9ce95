"""What a real vLLM on one GPU gave, from h200.json: engines with made-up weights, asked by HTTP on their own host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from benchmarks.published_rows import stored_as
from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.facts.records import read_facts
from stacks.proof.cache import KvDtype
from stacks.proof.memory import EngineVersion

FOLDER = Path(__file__).parent
Kind = Literal["ttft", "itl", "full", "poisson", "heavy"]


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """One load that was put on an engine. Requests of it are alike, and no prompt is found in a cache."""

    name: str
    kind: Kind
    """ttft: requests one after the other. itl: streams at once. full: a run that starts with all its requests. poisson:
    random arrivals. heavy: a prompt beside streams of 700 tokens."""
    prompt: int
    answer: int
    count: int
    """Requests; of `heavy`, the streams."""
    figures: Mapping[str, float]
    """By metric, as `ttft_ms p50`."""
    rate: float = 0.0
    """Of random arrivals, requests per second."""


@dataclass(frozen=True, kw_only=True)
class MeasuredModel:
    """An engine and what it was asked. One GPU."""

    name: str
    model: str
    weights: str = ""
    """Stored otherwise than the catalogue's model."""
    cache: KvDtype
    seqs: int
    batched_tokens: int
    context: int
    start: Mapping[str, float]
    """What the engine's log states of its memory, and the seconds until it answered."""
    steps: tuple[MeasuredStep, ...] = ()

    @cached_property
    def loaded(self) -> CatalogueModel:
        """The catalogue's model, or one that is only measured here, with the weights that ran."""
        own = FOLDER / f"{self.model}.yaml"
        model = read_facts(own, CatalogueModel) if own.exists() else catalogue.load(self.model)
        return stored_as(model, self.weights) if self.weights else model


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One machine on one day."""

    gpu: str
    engine: str
    measured: str
    software: Mapping[str, str]
    probe: Mapping[str, Any]
    """The GPU itself, without vLLM."""
    models: tuple[MeasuredModel, ...] = field(default=())

    @property
    def version(self) -> EngineVersion:
        major, minor = self.engine.split(".")[:2]
        return int(major), int(minor)


def measured_run(file: Path = FOLDER / "h200.json") -> MeasuredRun:
    """The file's content."""
    read: dict[str, Any] = json.loads(file.read_text())
    models = tuple(_model(name, entry) for name, entry in read.pop("models").items())
    return MeasuredRun(models=models, **read)


def _model(name: str, entry: dict[str, Any]) -> MeasuredModel:
    steps = tuple(MeasuredStep(**step) for step in entry.pop("steps"))
    return MeasuredModel(name=name, steps=steps, **entry)
