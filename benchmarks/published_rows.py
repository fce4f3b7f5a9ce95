"""Published speeds of engines, from published.yaml, and what the proof gives in their place."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmarks.packed_run import alike, mixed, run_s
from stacks.facts import catalogue
from stacks.facts.catalogue import CatalogueModel, FullAttention, Quantisation, SlidingAttention
from stacks.facts.hardware import GPUS
from stacks.proof.cache import KvDtype, cache_of
from stacks.proof.front_end import FRONT_END
from stacks.proof.layouts import Layout, weights_per_gpu
from stacks.proof.memory import DEFAULT_BATCHED_TOKENS, ENGINE_MAX_SEQS, MEMORY_UTILISATION, footprint_of
from stacks.proof.roofline import CALIBRATION, Calibration, Roofline, kernels_of
from stacks.proof.saturation import Mix, Saturation, saturation
from stacks.proof.serving import REQUEST_OVERHEAD_S

FILE = Path(__file__).parent / "published.yaml"
# Runs are of versions that do not sort logits, or were tuned so that it does not matter.
_ENGINE = (0, 32)
Metric = Literal["requests_per_s", "answer_tokens_per_s_per_gpu", "itl_ms", "ttft_ms"]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One model on one layout, engine and kind of GPU: rows of a series share their errors, so they are split whole."""

    name: str
    source: str
    model: str
    gpu: str
    engine: str
    version: str
    weights: str = ""
    cache: KvDtype = "bf16"
    tensor: int = 1
    data: int = 1
    expert_parallel: bool = False
    batched_tokens: int = DEFAULT_BATCHED_TOKENS
    seqs: int = ENGINE_MAX_SEQS
    memory_share: float = MEMORY_UTILISATION
    by_http: bool = True
    """Whether requests came through a server, and were not handed to the engine in its own process."""
    whole_caches: bool = False
    """Whether the engine keeps the whole cache of layers that see a chunk of it alone."""
    later: bool = False
    """Whether it came after the constants were fitted."""

    @property
    def held_out(self) -> bool:
        """Whether no constant was fitted to it: it came later, or the first byte of the name's SHA-256 is odd."""
        return self.later or hashlib.sha256(self.name.encode()).digest()[0] % 2 == 1

    @property
    def layout(self) -> Layout:
        return Layout(tensor=self.tensor, data=self.data, expert_parallel=self.expert_parallel)

    @cached_property
    def catalogued(self) -> CatalogueModel:
        """The catalogue's model, with the weights that were measured."""
        model = catalogue.load(self.model)
        return stored_as(model, self.weights) if self.weights else model

    @property
    def format(self) -> str:
        """How the weights are stored."""
        return self.catalogued.quantisation.format

    @property
    def measured(self) -> bool:
        """Whether an engine ran; AIConfigurator adds kernel timings up."""
        return self.engine != "AIConfigurator"

    def roofline(self, calibration: Calibration = CALIBRATION) -> Roofline:
        fit = calibration if self.measured else kernels_of(calibration)
        return Roofline(self.catalogued, GPUS[self.gpu], self.layout, self.cache, fit)

    def slots(self, tokens: float) -> int:
        """Requests of that length that one scheduler holds; at least 1, as the run is published.

        A run that was tuned to start allows no more sequences than leave room for themselves.
        """
        cached = _without_windows(self.catalogued) if self.whole_caches else self.catalogued
        cache = cache_of(cached, self.layout, self.cache)
        footprint = footprint_of(self.catalogued, self.layout, _ENGINE, family=GPUS[self.gpu].family)
        offered = GPUS[self.gpu].memory_bytes * self.memory_share - weights_per_gpu(self.catalogued, self.layout)
        offered -= cache.shared_bytes(self.batched_tokens)

        def fits(sequences: int) -> bool:
            reserve = footprint.reserve(sequences=sequences, batched_tokens=self.batched_tokens)
            return sequences * cache.request_bytes(tokens) <= offered - reserve.total

        return max(1, bisect_left(range(1, self.seqs + 1), 1, key=lambda sequences: int(not fits(sequences))))


def stored_as(model: CatalogueModel, weights: str) -> CatalogueModel:
    """The model with its layers stored in another format; `none` is bf16."""
    parts = ("mixers", "dense", "experts", "shared") if weights != "none" else ()
    return model.model_copy(update={"quantisation": Quantisation(format=weights, parts=parts)})


def _without_windows(model: CatalogueModel) -> CatalogueModel:
    """The model as if layers with a window kept the whole context."""
    mixers = {
        name: FullAttention(kind="full", **mixer.model_dump(exclude={"kind", "window"}))
        if isinstance(mixer, SlidingAttention)
        else mixer
        for name, mixer in model.mixers.items()
    }
    return model.model_copy(update={"mixers": mixers})


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One published figure."""

    series: Series
    prompt: float
    answer: float
    metric: Metric
    figure: float
    requests: int | None = None
    """Requests of a run that starts with all of them."""
    mean_only: bool = False
    """Whether lengths differ, and the source gives their mean alone."""
    concurrency: int | None = None
    """Requests that a client keeps under way."""
    itl_limit_ms: float | None = None
    """Instead: as many requests as keep the mean time between tokens below this."""
    cached: float = 0.0
    """Prompt tokens beyond `prompt` that are in a cache."""

    @property
    def load(self) -> str:
        if self.itl_limit_ms:
            return f"ITL <= {self.itl_limit_ms:g} ms"
        return f"{self.concurrency} at once" if self.concurrency else f"run of {self.requests:,}"

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Prompt and answer tokens of what one scheduler gets in a run; of a first token, the prompt alone."""
        if self.metric == "ttft_ms":
            return alike(self.prompt, 1, 1)
        count = -(-(self.requests or 1) // self.series.data)
        return (mixed if self.mean_only else alike)(self.prompt, self.answer, count)

    @cached_property
    def slots(self) -> int:
        """Requests that one scheduler runs at once."""
        held = self.series.slots(self.prompt + self.cached + self.answer)
        return min(held, -(-self.concurrency // self.series.data)) if self.concurrency else held

    @property
    def before_s(self) -> float:
        """What an unloaded first token takes beside its step."""
        return REQUEST_OVERHEAD_S + self.prompt * FRONT_END.prompt_token_s

    @cached_property
    def ours(self) -> float:
        """The proof's figure for the same, in the row's unit."""
        return self.derived(CALIBRATION)

    def derived(self, calibration: Calibration) -> float:
        """The same with other constants."""
        roofline = self.series.roofline(calibration)
        if self.metric == "ttft_ms" or self.requests:
            seconds = run_s(
                roofline,
                self.lengths,
                slots=self.slots,
                batched_tokens=self.series.batched_tokens,
                # A first token has what it takes beside its step.
                front_end=FRONT_END if self.series.by_http and self.requests else None,
            )
            if self.metric == "ttft_ms":
                return (self.before_s + seconds) * 1e3
            return self.of_requests(len(self.lengths) / seconds)
        steady = self._steady(roofline, self.slots)
        if self.itl_limit_ms:
            within = (self._steady(roofline, count) for count in range(1, self.slots + 1))
            steady = max(
                (state for state in within if state.step_s * 1e3 <= self.itl_limit_ms),
                key=lambda state: state.requests_per_s,
                default=steady,
            )
        return steady.step_s * 1e3 if self.metric == "itl_ms" else self.of_requests(steady.requests_per_s)

    def of_requests(self, per_s: float) -> float:
        """A throughput in the row's unit, of the requests that one scheduler answers in a second."""
        rate = per_s * self.series.data
        return rate if self.metric == "requests_per_s" else rate * self.answer / self.series.layout.gpus

    def _steady(self, roofline: Roofline, slots: int) -> Saturation:
        mix = Mix(prompt=self.prompt, answer=self.answer, cached=self.cached)
        return saturation(roofline, mix, slots=slots, batched_tokens=self.series.batched_tokens)

    @property
    def pace(self) -> float:
        """Ours over the published figure, as a speed: above 1 the proof promises too much, whatever the unit."""
        return self.pace_of(self.ours)

    def pace_of(self, figure: float) -> float:
        """The same for another figure than ours."""
        ratio = figure / self.figure
        return 1 / ratio if self.metric in ("itl_ms", "ttft_ms") else ratio


@cache
def published_rows(file: Path = FILE) -> tuple[PublishedRow, ...]:
    """Every row of the file, in its order; read once, as rows keep what they derive."""
    read: list[dict[str, Any]] = yaml.safe_load(file.read_text())
    rows = []
    for entry in read:
        measured = entry.pop("rows")
        series = Series(**entry)
        rows += [PublishedRow(series=series, **row) for row in measured]
    return tuple(rows)
