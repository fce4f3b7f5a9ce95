"""What alerts hold a running site to: figures of its plan, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Metric = Literal["ttft", "itl", "tpot"]
HISTOGRAMS: Mapping[Metric, tuple[str, ...]] = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "itl": ("vllm:inter_token_latency_seconds",),
    # The simulator has the name of earlier vLLMs.
    "tpot": ("vllm:request_time_per_output_token_seconds", "vllm:time_per_output_token_seconds"),
}
"""The engine's histogram of each metric that targets are about, under vLLM's name first."""


@dataclass(frozen=True, kw_only=True)
class LatencyPromise:
    """A latency target of a model: so many percent of a metric's values are at most that."""

    metric: Metric
    percentile: int
    seconds: float
    bound_s: float | None
    """Smallest bound, in seconds, of the engine's histogram that is not below `seconds`: how many values are within the
    target can be counted up to there alone. None where the histogram ends before."""


@dataclass(frozen=True, kw_only=True)
class ModelPromise:
    """What a site declares of one model, and what its proof promises."""

    model: str
    targets: tuple[LatencyPromise, ...] = ()
    itl_mean_s: float | None
    """Mean seconds between tokens at the slow end of the proof's band, under the declared load or else in a full batch;
    None for a model that generates none."""
    requests_per_s: float | None
    """Expected load; None where none is declared."""
    replicas: int
    gpus: float
    """Of all replicas; a slice counts as its part of a GPU."""
    start_budget_s: int
    """Seconds that a replica may take to start."""
    stall_s: int
    """Seconds that a replica may hold requests without a step; then it is restarted."""
    weights_budget_s: int
    """Seconds that a node may take to get its weights; 0 where nothing brings them."""
    shedding_queue: int
    """Waiting requests per replica from which on pickers refuse tiers below 0."""
    nodes: int = 1
    """Of a replica."""
    carried_tokens_per_s: float = 0.0
    """Of prompts and answers, that all replicas carry within the targets; 0 without a load."""


@dataclass(frozen=True, kw_only=True)
class SitePromise:
    """What a site declares as a whole."""

    models: tuple[ModelPromise, ...]
    availability_percent: float
    """Share of requests answered without an error of the platform."""
    node_gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs or slices that each node should offer; empty where the site does not list its nodes."""
    slices: Mapping[str, float] = field(default_factory=dict)
    """Resources of slices that nodes offer or models have, and which part of a GPU one is."""
    tiers: Mapping[str, str] = field(default_factory=dict)
    """Tier of each tenant; `none` for a tenant without one."""
    jobs: tuple[str, ...] = ()
    """Scrape jobs that must have a target."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Models whose replicas are groups of pods over several nodes."""
        return tuple(model.model for model in self.models if model.nodes > 1)
