"""Which replica gets a request, and which requests may not enter: the endpoint picker, and taking replicas in turn.

After the endpoint picker of the Gateway API Inference Extension 1.5.0 with the platform's configuration
(manifests/templates/endpoint-picker.yaml.j2): scorers of prefix (matched / prompt), queue ((longest - own) / (longest -
shortest)), cache (1 - share in use) and, where adapters take turns, adapter; a filter at the thresholds that is open
where no replica is below them, and saturation as the mean over replicas of the larger of queue / threshold and cache /
threshold, 1 for a silent replica. With `pool.queues` a saturated picker holds requests, and then lets one go each
millisecond, by priority.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from stacks.whatif.jobs import Job
from stacks.whatif.traffic import Arrival, PromptPart

Picking = Literal["picker", "in turn"]

# Metrics that are older count as a full replica's (metricsStalenessThreshold in the picker's configuration).
STALE_S = 2.0
# The least time between two requests that a picker lets go out of its queues.
_TURN_S = 0.001


@dataclass(frozen=True, kw_only=True)
class PickingPlan:
    """The pickers of one model, as the site sets them."""

    picking: Picking = "picker"
    pickers: int = 1
    """Side by side; each knows the prefixes of the requests that it placed itself."""
    prefix_weight: float = 3.0
    queue_weight: float = 2.0
    kv_weight: float = 2.0
    adapter_weight: float = 0.0
    places: int = 0
    """Of adapters, in each replica."""
    queue_threshold: float = 5.0
    """Waiting requests of a replica beyond which another one is preferred."""
    kv_threshold: float = 0.8
    """Share of its cache in use beyond which another one is preferred."""
    shedding_threshold: float = 5.0
    """Waiting requests, on average over the replicas, from which on a picker holds requests; without `room`, it refuses
    those below priority 0 then."""
    room: tuple[int, ...] = ()
    """Most requests that a picker holds, by tier; empty where it holds none."""
    patience_s: float = 60.0
    """A request that it has held for longer is refused."""
    metrics_interval_s: float = 0.05
    """How often a picker reads the replicas' metrics."""
    index_tokens: int = 10**9
    """Tokens of prefixes that it remembers for each replica."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a replica reports of itself."""

    waiting: int
    kv_share: float
    adapters: frozenset[int] = frozenset()
    """That requests run with."""
    awaited: frozenset[int] = frozenset()
    """Whose requests wait."""


class _Index:
    """Texts that a picker has sent to one replica, the least recently used first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._texts: dict[int, int] = {}
        self._tokens = 0

    def match(self, parts: Sequence[PromptPart]) -> int:
        tokens = 0
        for part in parts:
            known = min(self._texts.get(part.key, 0), part.known)
            tokens += known
            if known < part.tokens:
                break
        return tokens

    def add(self, parts: Sequence[PromptPart]) -> None:
        for part in parts:
            before = self._texts.pop(part.key, 0)
            kept = max(before, part.tokens)
            self._texts[part.key] = kept
            self._tokens += kept - before
        while self._tokens > self._capacity:
            key = next(iter(self._texts))
            self._tokens -= self._texts.pop(key)

    def clear(self) -> None:
        self._texts.clear()
        self._tokens = 0


class EndpointPicker:
    """One endpoint picker."""

    def __init__(self, plan: PickingPlan, replicas: int, random: Random) -> None:
        self._plan, self._random = plan, random
        self._indexes = [_Index(plan.index_tokens) for _ in range(replicas)]
        self._metrics = dict.fromkeys(range(replicas), Metrics(0, 0.0))
        self._read_s = -1.0
        self._turn = 0
        self._held: list[deque[tuple[float, Job]]] = [deque() for _ in plan.room]

    @property
    def holds(self) -> bool:
        """Whether requests wait in it."""
        return any(self._held)

    def hold(self, job: Job, now: float) -> bool:
        """Whether it has room for a request that has to wait."""
        queue = self._held[job.arrival.tier]
        if len(queue) >= self._plan.room[job.arrival.tier]:
            return False
        queue.append((now, job))
        return True

    def given_up(self, now: float) -> Iterator[Job]:
        """Those that it has held for too long."""
        for queue in self._held:
            while queue and now - queue[0][0] > self._plan.patience_s:
                yield queue.popleft()[1]

    def let_go(self) -> Iterator[Job]:
        """Those that it lets go before it reads metrics again, the highest priority first."""
        for _ in range(max(1, round(self._plan.metrics_interval_s / _TURN_S))):
            queue = next((queue for queue in self._held if queue), None)
            if queue is None:
                return
            yield queue.popleft()[1]

    def due(self, now: float) -> bool:
        """Whether it reads the metrics again before the next choice."""
        return now - self._read_s >= self._plan.metrics_interval_s or self._read_s < 0

    def read(self, metrics: Mapping[int, Metrics], now: float) -> None:
        """The metrics of the replicas that answer; of others the last ones stay."""
        self._metrics.update(metrics)
        self._read_s = now

    def saturated(self, fresh: Sequence[int], silent: int = 0) -> bool:
        """Whether requests are held, or those below priority 0 refused. `silent`: replicas whose metrics are stale."""
        plan = self._plan
        total = float(silent)
        for replica in fresh:
            metrics = self._metrics[replica]
            total += max(metrics.waiting / plan.shedding_threshold, metrics.kv_share / plan.kv_threshold)
        return total >= len(fresh) + silent

    def pick(self, arrival: Arrival, listed: Sequence[int], fresh: Sequence[int]) -> int:
        """One of the replicas that are `listed`, which is not empty; rather one whose metrics are `fresh`."""
        if self._plan.picking == "in turn":
            self._turn += 1
            return listed[self._turn % len(listed)]
        replica = self._best(arrival, listed, fresh)
        self._indexes[replica].add(arrival.parts)
        return replica

    def _best(self, arrival: Arrival, listed: Sequence[int], fresh: Sequence[int]) -> int:
        plan, metrics = self._plan, self._metrics
        below = [
            replica
            for replica in fresh
            if metrics[replica].waiting < plan.queue_threshold and metrics[replica].kv_share < plan.kv_threshold
        ]
        candidates = below or listed
        queues = [metrics[replica].waiting for replica in candidates]
        longest, shortest = max(queues), min(queues)
        best, chosen = -1.0, []
        for replica, queue in zip(candidates, queues, strict=True):
            score = plan.prefix_weight * self._indexes[replica].match(arrival.parts) / arrival.prompt
            score += plan.queue_weight * ((longest - queue) / (longest - shortest) if longest > shortest else 1.0)
            score += plan.kv_weight * (1 - metrics[replica].kv_share)
            if plan.adapter_weight and arrival.adapter is not None:
                score += plan.adapter_weight * self._affinity(arrival.adapter, metrics[replica])
            if score > best:
                best, chosen = score, [replica]
            elif score == best:
                chosen.append(replica)
        return chosen[0] if len(chosen) == 1 else self._random.choice(chosen)

    def _affinity(self, adapter: int, metrics: Metrics) -> float:
        """The picker's scorer of adapters (plugins/scheduling/scorer/loraaffinity), 0 to 1."""
        if adapter in metrics.adapters:
            return 1.0
        if len(metrics.adapters) + len(metrics.awaited) < self._plan.places:
            return 0.8
        return 0.6 if adapter in metrics.awaited else 0.0

    def forget(self, replica: int) -> None:
        """A lost replica is back, with an empty cache."""
        self._indexes[replica].clear()

    def learn(self, replica: int, parts: Sequence[PromptPart]) -> None:
        """It sent these texts there before the simulation begins."""
        self._indexes[replica].add(parts)
