"""What a site may set for its log of requests."""

from __future__ import annotations

from pydantic import Field

from floor.spec import Spec


class RequestLogSpec(Spec):
    """Which requests the gateway logs, each as one line of JSON without prompt, answer or key."""

    sampled_percent: int = Field(default=100, ge=0, le=100)
    """Share of all requests that is logged. Below 100, every request that failed, ended early or was slow still is."""
    slow_ttft_ms: int = Field(default=10_000, ge=1, le=3_600_000)
    """A request is slow if its first token took longer than this; without a stream, if its answer did."""
    slow_itl_ms: int = Field(default=200, ge=1, le=60_000)
    """A request is slow if the mean time between its tokens was longer than this; streams alone are timed."""
