"""Times of engine steps, asked for a hundred thousand times: the roofline, remembered by coarse sizes."""

from __future__ import annotations

from collections.abc import Callable

from stacks.proof.roofline import Roofline

StepTime = Callable[[int, float, int, float], float]
"""Seconds of a step: prompt tokens in it, tokens that one of them attends to on average, requests that get a token
each, tokens that each of these has."""

# Sizes of one bucket differ by at most 1 / 32.
_BITS = 6


def coarse(size: float) -> int:
    """The middle of the bucket of a size; small sizes are exact."""
    whole = int(size)
    shift = max(0, whole.bit_length() - _BITS)
    return (whole >> shift << shift) + (1 << shift >> 1)


def step_times(roofline: Roofline, stages: int) -> StepTime:
    """Step times of one scheduler. `stages`: of a pipeline, each of which has a part of the requests at a time."""
    known: dict[tuple[int, int, int, int], float] = {}

    def step_s(prefill: int, reach: float, decodes: int, context: float) -> float:
        key = (coarse(prefill), coarse(reach), coarse(decodes), coarse(context))
        if (seconds := known.get(key)) is None:
            tokens, attended, running, each_has = key
            seconds = roofline.step_s(
                prefill=tokens / stages,
                reach=attended,
                decodes=max(1.0, running / stages) if running else 0.0,
                context=each_has,
            )
            known[key] = seconds
        return seconds

    return step_s
