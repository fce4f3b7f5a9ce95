"""What is counted while the simulation runs: by part of the time, and by tier."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stacks.whatif.jobs import Job

# Buckets of a time differ by one percent.
_STEPS = 100


@dataclass
class Counts:
    """Requests of one tier that came in one part of the time, and tokens that were written in it."""

    came: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """By `jobs.End`; those under way at the end of the simulation are missing."""
    first_s: list[float] = field(default_factory=list)
    """Seconds from the gateway to the first token, of those that got one."""
    answer_token_s: list[float] = field(default_factory=list)
    """Mean seconds between two tokens, by answer of two and more tokens."""
    gaps: Counter[int] = field(default_factory=Counter)
    """Times between what two steps gave, by bucket: a token, or with drafts several in one piece."""
    lost: int = 0
    """Requests that ended with their replica in this part of the time, whenever they came."""
    answer_tokens: float = 0.0
    """Written in this part of the time, whenever their requests came."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of those; both of requests that started."""

    def add(self, other: Counts) -> None:
        """Count another simulation of the same in."""
        self.came += other.came
        self.ends += other.ends
        self.first_s += other.first_s
        self.answer_token_s += other.answer_token_s
        self.gaps += other.gaps
        self.lost += other.lost
        self.answer_tokens += other.answer_tokens
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens

    @property
    def refused(self) -> int:
        """Requests that gateway, picker or engine refused, or for which no replica was there."""
        return sum(self.ends[end] for end in ("gateway", "picker", "engine", "nowhere"))


def together(parts: Iterable[Counts]) -> Counts:
    """All of them as one."""
    total = Counts()
    for counts in parts:
        total.add(counts)
    return total


class Tally:
    """Counts by phase and tier. Phases are parts of the time, each up to the next border."""

    def __init__(self, borders_s: Sequence[float], tiers: int) -> None:
        self._borders = list(borders_s)
        self.counts = [[Counts() for _ in range(tiers)] for _ in range(len(borders_s) + 1)]
        self.latest: deque[tuple[float, float]] = deque()
        """(when, seconds from the gateway) of the first tokens that were not taken away yet."""
        self.thrown_out = 0
        """Times that a scheduler took a running request's cache."""

    def phase(self, now: float) -> int:
        """The part of the time that this is in."""
        return bisect_right(self._borders, now)

    def came(self, job: Job) -> None:
        """A request is at the gateway."""
        self.counts[job.phase][job.arrival.tier].came += 1

    def started(self, job: Job) -> None:
        """A scheduler began with its prompt."""
        counts = self.counts[job.phase][job.arrival.tier]
        counts.prompt_tokens += job.arrival.prompt
        counts.cached_tokens += job.cached

    def first(self, job: Job, now: float) -> None:
        """Its first token was written."""
        self.counts[job.phase][job.arrival.tier].first_s.append(now - job.arrival.at_s)
        self.latest.append((now, now - job.arrival.at_s))
        self.counts[self.phase(now)][job.arrival.tier].answer_tokens += 1

    def firsts(self, since_s: float) -> list[float]:
        """Seconds to the first tokens that were written since then; earlier ones are forgotten."""
        while self.latest and self.latest[0][0] < since_s:
            self.latest.popleft()
        return [first_s for _, first_s in self.latest]

    def gaps(self, now: float, tier: int, gap_s: float, count: int, tokens: float) -> None:
        """So many pieces with so many tokens in all came that long after the ones before."""
        counts = self.counts[self.phase(now)][tier]
        counts.gaps[math.floor(math.log(gap_s) * _STEPS)] += count
        counts.answer_tokens += tokens

    def ended(self, job: Job) -> None:
        """It was answered, refused or lost."""
        counts = self.counts[job.phase][job.arrival.tier]
        counts.ends[job.end] += 1
        if job.end == "lost":
            self.counts[self.phase(job.ended_s)][job.arrival.tier].lost += 1
        if job.end == "answered" and job.answered > 1:
            counts.answer_token_s.append((job.ended_s - job.first_s) / (job.answered - 1))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share does not exceed, by rank; not a number without any."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def gap_quantile(gaps: Mapping[int, int], share: float) -> float:
    """The same of bucketed times, in seconds."""
    total, passed = sum(gaps.values()), 0
    for bucket in sorted(gaps):
        passed += gaps[bucket]
        if passed >= share * total:
            return math.exp((bucket + 0.5) / _STEPS)
    return math.nan
