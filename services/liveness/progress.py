"""Since when an engine has taken no step while it holds requests, by its own metrics."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

# Of a core that hung before it began a request, only the second one shows it.
HELD = ("vllm:num_requests_running", "vllm:num_requests_waiting")
# What only a step of the engine core moves. vLLM's front end keeps answering with the last values of a core that hangs.
# A chunk of a prompt gives no token, and counts nowhere but in the cache's use.
MARKS = (
    "vllm:iteration_tokens_total_count",
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:time_to_first_token_seconds_count",
    "vllm:inter_token_latency_seconds_count",
    "vllm:request_success_total",
    "vllm:kv_cache_usage_perc",
)
_SAMPLE = re.compile(r"^(?P<name>vllm:\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_ENGINE = re.compile(r'(?:^|,)engine="(?P<engine>[^"]*)"')


@dataclass(frozen=True, kw_only=True)
class Still:
    """An engine core that holds requests and takes no step."""

    engine: str
    """Its number among data-parallel ranks, as vLLM labels it; empty where there is no such label."""
    requests: float
    """Running and waiting ones."""
    seconds: float


@dataclass(frozen=True)
class _Rank:
    requests: float
    marks: tuple[float, ...]
    since: float


class EngineProgress:
    """What was seen of an engine. Each data-parallel rank is looked at by itself: others may go on without it."""

    def __init__(self) -> None:
        self._ranks: dict[str, _Rank] = {}

    def see(self, text: str, now: float) -> Still | None:
        """Take a scrape in; the rank that has been still for longest, or None where each is idle or moved."""
        stills = []
        for engine, values in _by_rank(text).items():
            requests, marks = sum(values[: len(HELD)]), values[len(HELD) :]
            before = self._ranks.get(engine)
            is_still = before is not None and before.requests and requests and before.marks == marks
            rank = self._ranks[engine] = _Rank(requests, marks, before.since if before and is_still else now)
            if is_still:
                stills.append(Still(engine=engine, requests=requests, seconds=now - rank.since))
        return max(stills, key=lambda still: still.seconds, default=None)


def _by_rank(text: str) -> dict[str, tuple[float, ...]]:
    """What each engine core holds, and its marks; sums over other labels."""
    names = (*HELD, *MARKS)
    ranks: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(names, 0.0))
    for line in text.splitlines():
        sample = _SAMPLE.match(line)
        if sample and sample["name"] in names:
            engine = _ENGINE.search(sample["labels"] or "")
            ranks[engine["engine"] if engine else ""][sample["name"]] += float(sample["value"])
    return {engine: tuple(values.values()) for engine, values in ranks.items()}
