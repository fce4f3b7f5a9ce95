"""Orders that several tests of the proof use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel
from stacks.facts.hardware import GPUS
from stacks.facts.records import read_facts
from stacks.proof.case import Case
from stacks.proof.demand import Load, Slo, Spread
from stacks.proof.layouts import Layout
from stacks.proof.memory import EngineVersion, Reserve, footprint_of
from stacks.proof.order import Order
from stacks.proof.speculation import Method, Speculation

ONE = Layout()
CHAT = Load(requests_per_s=2.0, prefix_hit=0.5)
TARGETS = Slo.of(ttft_p95_ms=4000, itl_p95_ms=80)
# Those whose context holds the longest prompt and answer of CHAT, 18,000 tokens: all but phi-4.
GENERATING = [
    name
    for name in catalogue.names()
    if (known := catalogue.load(name)).task == "generate" and known.max_context_tokens >= 18_000
]


def published_model(name: str) -> CatalogueModel:
    """Of the catalogue; or one that is in no catalogue, but in published logs."""
    if name in catalogue.names():
        return catalogue.load(name)
    return read_facts(Path(__file__).parent / "published_models" / f"{name}.yaml", CatalogueModel)


def order(name: str, gpu: str = "h200-sxm", **more: Any) -> Order:
    return Order(name=name, model=published_model(name), gpu=gpu, **more)


def fixed(prompt: float, answer: float, rate: float = 1.0, hit: float = 0.0) -> Load:
    """Requests that are all alike."""
    return Load(
        requests_per_s=rate,
        prompt_tokens=Spread(prompt, prompt * 1.0001),
        answer_tokens=Spread(answer, answer * 1.0001),
        prefix_hit=hit,
    )


def reserve_of(
    model: CatalogueModel,
    layout: Layout,
    *,
    sequences: int,
    batched_tokens: int,
    engine: EngineVersion | None = None,
    gpu: str = "h200-sxm",
) -> Reserve:
    """What an engine keeps free with those settings."""
    return footprint_of(model, layout, engine, family=GPUS[gpu].family).reserve(
        sequences=sequences, batched_tokens=batched_tokens
    )


def drafting(method: Method = "ngram", tokens: int = 3, acceptance: float = 0.6) -> Speculation:
    draft = catalogue.load("qwen3-0.6b") if method == "draft" else None
    return Speculation(method=method, tokens=tokens, acceptance=acceptance, draft=draft)


def case_of(name: str, speculation: Speculation | None, layout: Layout = ONE, **more: Any) -> Case:
    return Case(order(name, speculation=speculation, **more), layout, more.get("replicas") or 1)
