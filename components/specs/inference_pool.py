"""What a site may set for the distribution of requests, and the derived figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from floor.spec import Spec


class InferencePoolSpec(Spec):
    """How requests are spread over a model's replicas."""

    pickers: int = Field(default=2, ge=1, le=3)
    """Endpoint pickers side by side. While none answers, the model's requests fail; of two, one may die unnoticed. Each
    knows the prefixes of the requests that it placed itself, so conversations find their cache a little less often."""
    prefix_weight: float = Field(default=3, ge=0)
    """Weight of the longest cached prefix."""
    queue_weight: float = Field(default=2, ge=0)
    """Weight of the shortest queue."""
    kv_weight: float = Field(default=2, ge=0)
    """Weight of the emptiest KV cache."""
    adapter_weight: float = Field(default=3, ge=0)
    """Weight of a replica where requests for the same adapter run, or where fewer adapters are in use than there are
    places; for a model whose adapters take turns (`server.resident_adapters`)."""
    metrics_interval_ms: int = Field(default=50, ge=10, le=1000)
    """How often each picker reads the metrics of each replica. Reading costs it 0.075 cores per replica at 50, by its
    maintainers' sizing; metrics older than 2 s count for nothing."""
    queues: bool = False
    """While the replicas are full, pickers let requests wait in a queue for each priority, the highest first, and the
    tenants of a priority take turns; below 0 requests wait, too, until their queue is full. Jobs are served more, and
    others wait somewhat longer than where pickers refuse all below 0."""
    admission: Literal["requests", "pages"] = "requests"
    """What bounds the requests under way: their number, or also what they are going to hold of the model's KV cache,
    each its prompt and an answer of the load's mean length; the next one gets 503 `model_overloaded`. `pages` needs a
    gatekeeper and a number of replicas that does not change."""
    cpu: str = "500m"
    """CPU request of one picker; the picker's maintainers measured 0.5 to 1 core per request/s of 100,000 tokens."""
    memory: str = "1Gi"
    """Memory request of one picker."""


@dataclass(frozen=True, kw_only=True)
class PriorityBand:
    """The queue of one priority in front of a model, in one picker."""

    priority: int
    requests: int
    """Most that wait in it, at least 1."""


@dataclass(frozen=True, kw_only=True)
class PickerPlan:
    """Figures of one replica: its cache, as the prefix index needs them until it has scraped the engine's own, and
    the load from which on another replica is preferred."""

    block_tokens: int
    prefix_tokens: int
    kv_blocks: int
    queue_threshold: int
    """Waiting requests, at least 1."""
    shedding_queue_threshold: int
    """Waiting requests from which on those are refused that may be shed, or all are held; at least 1."""
    kv_threshold: float
    """Share of the cache in use, above 0 and at most 1."""
    bands: tuple[PriorityBand, ...] = ()
    """Queues by priority, the highest first; none where pickers hold nothing."""
    adapters_turn: bool = False
    """Whether adapters are more than their places on a replica."""
    held_bytes: int = 0
    """Bodies of all requests that wait in one picker."""


METRICS_PORT = 9090
PICKER = "endpoint-picker"
"""Value of the label app.kubernetes.io/name of every model's pickers."""
_PICKER_END = "-epp"


def picker_name(model: str) -> str:
    """Name of the picker's objects."""
    return f"{model}{_PICKER_END}"


def picker_metrics(model: str, namespace: str) -> str:
    """Host and port of the pickers' metrics; the name has the address of each that is ready."""
    return f"{picker_name(model)}.{namespace}.svc:{METRICS_PORT}"


def picked_model(name: str) -> str:
    """The model whose picker has objects of this name; the name itself where it is no picker's."""
    return name.removesuffix(_PICKER_END)
