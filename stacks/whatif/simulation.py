"""The way of every request: gateway, picker, replica, scheduler; event by event, from a seed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from stacks.proof.front_end import FrontEnd
from stacks.whatif.jobs import End, Job
from stacks.whatif.lengths import seeded
from stacks.whatif.picker import EndpointPicker, PickingPlan
from stacks.whatif.rank import NEVER, Rank, RankPlan
from stacks.whatif.replica import RunningReplica
from stacks.whatif.room import Room, RoomPlan
from stacks.whatif.scaler import Autoscaler, ScaledCounts
from stacks.whatif.tally import Tally
from stacks.whatif.traffic import Arrival, Source

# Kubernetes takes a silent node's replicas from the picker's list after node-monitor-grace-period, 50 s by default.
LISTED_S = 50.0


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """One model as it is deployed."""

    rank: RankPlan
    replicas: int
    ranks: int = 1
    """Schedulers of a replica."""
    most_held: int | None = None
    """Requests that a replica runs and queues; its engine refuses the next (max-num-queued-reqs)."""
    envoys: int = 1
    """Gateway pods, which get equal parts of the requests."""
    most_parallel: int | None = None
    """Requests of the model that one gateway pod has under way; it refuses the next."""
    room: RoomPlan | None = None
    """What requests may hold that are under way; without it, their number bounds them."""
    picking: PickingPlan = field(default_factory=PickingPlan)
    sheddable: tuple[bool, ...] = (False,)
    """By tier, whether its priority is below 0."""
    front_end: FrontEnd | None = None
    """API server of each replica; without one, requests are at a scheduler at once."""
    scaling: ScaledCounts | None = None
    """Without it, all replicas serve from the begin."""


@dataclass(frozen=True, kw_only=True)
class Outage:
    """Replicas that are lost for a while."""

    begins_s: float
    ends_s: float
    replicas: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a simulation gives."""

    tally: Tally
    lasted_s: float
    """Simulated seconds."""
    calm_again_s: float
    """From when on no more were under way than at most before the change; infinite if not within the simulation."""
    under_way: int
    """Requests at the end."""
    held_s: float
    """Requests under way, summed over the time."""
    trace: tuple[tuple[float, int], ...]
    """(second, requests under way then) once a second, as long as requests come."""
    replica_s: float
    """Replicas that there were, with those that started, summed over the time."""
    most_replicas: int
    """That there were at once."""


@dataclass(frozen=True, kw_only=True)
class _Change:
    at_s: float
    there: bool
    """Whether the replicas are there from then on."""
    replicas: tuple[int, ...]


class Simulation:
    """One model under one source of requests. Use it once."""

    def __init__(
        self,
        service: ServedModel,
        source: Source,
        *,
        seed: str,
        borders_s: Sequence[float] = (),
        outages: Sequence[Outage] = (),
        change_s: float = 0.0,
        settled_s: float = 0.0,
    ) -> None:
        """borders_s: between the parts of the time that are counted apart. change_s: until then the busiest moment is
        looked for. settled_s: from then on the simulation may be calm again.
        """
        tiers = len(service.sheddable)
        self._service, self._source, self._outages = service, source, outages
        self._seed, self._random = seed, seeded(seed, "ways")
        self._change_s, self._settled_s = change_s, settled_s
        self.tally = Tally(borders_s, tiers)
        self._replicas = [
            RunningReplica(number, self._ranks(number), service.front_end) for number in range(service.replicas)
        ]
        self._pickers = [
            EndpointPicker(service.picking, service.replicas, self._random) for _ in range(service.picking.pickers)
        ]
        self._scaler = Autoscaler(service.scaling) if service.scaling else None
        for replica in self._replicas[service.scaling.first if service.scaling else service.replicas :]:
            replica.alive, replica.lost_s = False, -NEVER
        self._replica_s, self._most_replicas = 0.0, 0
        self._envoys, self._room = [0] * service.envoys, Room(service.room)
        self._events: list[tuple[float, int, Rank, int]] = []
        # Requests that pass an API server then.
        self._passing: list[tuple[float, int, Job, RunningReplica]] = []
        # Pickers that hold requests look at the replicas again then.
        self._looks: list[tuple[float, int, EndpointPicker]] = []
        self._order = count()
        self._now = 0.0
        self._under_way = 0
        self._held_s = 0.0
        self._calm_most, self._calm_again_s = 0, NEVER
        self._trace: list[tuple[float, int]] = []

    def _ranks(self, number: int, life: str = "") -> list[Rank]:
        service = self._service
        names = [f"drafts {number} {rank}{life}" for rank in range(service.ranks)]
        tiers = len(service.sheddable)
        return [Rank(service.rank, self.tally, tiers, self._answered, seeded(self._seed, name)) for name in names]

    def run(self, until_s: float, *, drain_s: float = 0.0, calm_after_s: float = NEVER) -> Run:
        """Requests come up to `until_s`; those under way then get `drain_s` more.

        calm_after_s: from then on no more requests come once the simulation is calm again.
        """
        self._fill_caches()
        changes = self._changes()
        for arrival in self._source.arrivals(until_s):
            self._advance(arrival.at_s, changes)
            if arrival.at_s >= calm_after_s and self._calm_again_s < NEVER:
                break
            self._arrive(arrival)
        else:
            self._advance(until_s, changes)
        limit, stopped = self._now + drain_s, len(self._trace)
        while self._under_way and self._next_s <= limit:
            self._advance(self._next_s, changes)
        return Run(
            tally=self.tally,
            lasted_s=self._now,
            calm_again_s=self._calm_again_s,
            under_way=self._under_way,
            held_s=self._held_s,
            trace=tuple(self._trace[:stopped]),
            replica_s=self._replica_s,
            most_replicas=self._most_replicas,
        )

    def _changes(self) -> list[_Change]:
        """What happens to replicas, the last one first."""
        changes = []
        for outage in self._outages:
            changes.append(_Change(at_s=outage.begins_s, there=False, replicas=outage.replicas))
            if outage.ends_s < NEVER:
                changes.append(_Change(at_s=outage.ends_s, there=True, replicas=outage.replicas))
        return sorted(changes, key=lambda change: -change.at_s)

    def _fill_caches(self) -> None:
        for number, arrival in enumerate(self._source.earlier()):
            picker = self._pickers[number % len(self._pickers)]
            replica = self._random.randrange(self._count)
            picker.learn(replica, arrival.parts)
            ranks = self._replicas[replica].ranks
            ranks[self._random.randrange(len(ranks))].cache.put(arrival.parts)

    def _advance(self, now: float, changes: list[_Change]) -> None:
        """Everything that happens up to then."""
        while True:
            event_s = self._next_s
            if self._scaler and self._scaler.next_s <= min(event_s, now):
                self._at(self._scaler.next_s)
                self._scale(self._scaler)
                continue
            if changes and changes[-1].at_s <= min(event_s, now):
                change = changes.pop()
                self._at(change.at_s)
                self._change(change)
                continue
            if event_s > now:
                break
            if self._looks and self._looks[0][0] <= event_s:
                at_s, _, picker = heapq.heappop(self._looks)
                self._at(at_s)
                self._look(picker)
                continue
            if self._passing and self._passing[0][0] <= event_s:
                at_s, _, job, replica = heapq.heappop(self._passing)
                self._at(at_s)
                self._pass(job, replica)
                continue
            at_s, _, rank, version = heapq.heappop(self._events)
            if rank.version == version:
                self._at(at_s)
                rank.wake(at_s)
                self._push(rank)
        self._at(now)

    @property
    def _next_s(self) -> float:
        """When the next step ends, the next request passes an API server, or a picker looks again."""
        return min(queue[0][0] if queue else NEVER for queue in (self._events, self._passing, self._looks))

    def _at(self, now: float) -> None:
        """Move the clock."""
        if now >= self._settled_s and self._calm_again_s == NEVER and self._under_way <= self._calm_most:
            self._calm_again_s = max(self._now, self._settled_s)
        self._held_s += self._under_way * (now - self._now)
        self._replica_s += self._count * (now - self._now)
        self._most_replicas = max(self._most_replicas, self._count)
        if now >= len(self._trace):
            self._trace += [(float(second), self._under_way) for second in range(len(self._trace), int(now) + 1)]
        self._now = now

    @property
    def _count(self) -> int:
        """Replicas that there are to be."""
        return len(self._scaler.asked) if self._scaler else self._service.replicas

    def _scale(self, scaler: Autoscaler) -> None:
        serving = [replica for replica in self._replicas if replica.alive and not replica.leaving]
        caches = sum(replica.metrics().kv_share for replica in serving)
        late = scaler.late(self.tally.firsts(self._now - scaler.seen_s))
        there, ending = scaler.look(self._now, self._under_way, caches, late=late)
        for number in ending:
            self._replicas[number].leaving = True
        for number in there:
            replica = self._replicas[number]
            replica.alive, replica.leaving, replica.lost_s = True, False, self._now
            # Those of its first life answer what they hold.
            replica.ranks = self._ranks(number, f" from {self._now:.0f} s")
            for picker in self._pickers:
                picker.forget(number)

    def _push(self, rank: Rank) -> None:
        if rank.wake_s < NEVER:
            heapq.heappush(self._events, (rank.wake_s, next(self._order), rank, rank.version))

    def _change(self, change: _Change) -> None:
        for number in change.replicas:
            if self._scaler and number not in self._scaler.asked:
                continue
            replica = self._replicas[number]
            replica.alive = change.there
            replica.lost_s = self._now
            if change.there:
                for picker in self._pickers:
                    picker.forget(number)
                continue
            before = replica.door.stop() if replica.door else []
            for job in (*before, *(job for rank in replica.ranks for job in rank.stop())):
                self._end(job, "lost")

    def _arrive(self, arrival: Arrival) -> None:
        service, now = self._service, self._now
        job = Job(arrival, self.tally.phase(now))
        self.tally.came(job)
        job.envoy = self._random.randrange(service.envoys) if service.envoys > 1 else 0
        picker = self._pickers[self._random.randrange(len(self._pickers)) if len(self._pickers) > 1 else 0]
        full = self._full(picker)
        if not self._room.admits(job):
            self._over(job, "gateway")
        elif service.picking.room and (full or picker.holds):
            self._hold(job, picker)
        elif full and service.sheddable[arrival.tier]:
            self._over(job, "picker")
        else:
            self._place(job, picker)

    def _full(self, picker: EndpointPicker) -> bool:
        """Whether the picker takes the model for full, by the metrics that it has by now."""
        if picker.due(self._now):
            picker.read({replica.number: replica.metrics() for replica in self._replicas if replica.alive}, self._now)
        listed, fresh = self._listed()
        return picker.saturated(fresh, len(listed) - len(fresh))

    def _listed(self) -> tuple[list[int], list[int]]:
        """Replicas that pickers know of, and those of them whose metrics they go by.

        A replica that was just lost is chosen as before until its metrics are stale, and is listed for longer.
        """
        there = (item for item in self._replicas if not item.leaving)
        listed = [item.number for item in there if item.alive or self._now - item.lost_s < LISTED_S]
        return listed, [number for number in listed if self._replicas[number].fresh(self._now)]

    def _hold(self, job: Job, picker: EndpointPicker) -> None:
        looks = picker.holds
        if not picker.hold(job, self._now):
            self._over(job, "picker")
            return
        self._under_way += 1
        if not looks:
            self._look_again(picker)

    def _look_again(self, picker: EndpointPicker) -> None:
        at_s = self._now + self._service.picking.metrics_interval_s
        heapq.heappush(self._looks, (at_s, next(self._order), picker))

    def _look(self, picker: EndpointPicker) -> None:
        """What a picker that holds requests does after a reading of the metrics."""
        for job in picker.given_up(self._now):
            self._under_way -= 1
            self._over(job, "picker")
        if not self._full(picker):
            for job in picker.let_go():
                self._under_way -= 1
                self._place(job, picker)
        if picker.holds:
            self._look_again(picker)

    def _place(self, job: Job, picker: EndpointPicker) -> None:
        service, arrival = self._service, job.arrival
        # Envoy counts what is on its way to a replica: not what waits for the picker's answer.
        if service.most_parallel is not None and self._envoys[job.envoy] >= service.most_parallel:
            self._over(job, "gateway")
            return
        listed, fresh = self._listed()
        if not listed:
            self._over(job, "nowhere")
            return
        replica = self._replicas[picker.pick(arrival, listed, fresh)]
        if not replica.alive:
            self._over(job, "lost")
            return
        if service.most_held is not None and replica.held >= service.most_held:
            self._over(job, "engine")
            return
        self._enter(job, replica)

    def _enter(self, job: Job, replica: RunningReplica) -> None:
        job.replica = replica.number
        replica.held += 1
        self._envoys[job.envoy] += 1
        self._under_way += 1
        if self._now < self._change_s:
            self._calm_most = max(self._calm_most, self._under_way)
        if replica.door:
            passes_s = replica.door.enter(job, self._now, replica.ranks)
            heapq.heappush(self._passing, (passes_s, next(self._order), job, replica))
        else:
            self._submit(job, replica)

    def _pass(self, job: Job, replica: RunningReplica) -> None:
        """Unless it was lost at the door."""
        if replica.door and job in replica.door.jobs:
            replica.door.jobs.remove(job)
            self._submit(job, replica)

    def _submit(self, job: Job, replica: RunningReplica) -> None:
        rank = min(replica.ranks, key=lambda rank: rank.load) if len(replica.ranks) > 1 else replica.ranks[0]
        version = rank.version
        rank.submit(job, self._now)
        if rank.version != version:
            self._push(rank)

    def _answered(self, job: Job) -> None:
        self._end(job, "answered")

    def _end(self, job: Job, how: End) -> None:
        self._replicas[job.replica].held -= 1
        self._envoys[job.envoy] -= 1
        self._under_way -= 1
        self._over(job, how)

    def _over(self, job: Job, how: End) -> None:
        job.end, job.ended_s = how, self._now
        self._room.leave(job)
        self.tally.ended(job)
