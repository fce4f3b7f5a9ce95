"""Settings of a replica's progress: after how long without a step it is restarted."""

from __future__ import annotations

import math

from components.models.liveness import NOTICED_S
from stacks.plan.settings.definition import Basis, Bounds, Definition, Derived
from stacks.proof.proof import Proof

# A replica that hangs has ended after so many of the slowest steps, the time to notice it included.
_STEPS = 3
# What no roofline knows: kernels that are compiled at their first use, a clock that is throttled; estimated.
_FIRST_USE_S = 10
# Longer than any step, of any model on any GPU.
_MOST_S = 24 * 3600


def slowest_step_s(proof: Proof) -> float:
    """The longest step that the proof allows, at the slow end of its band.

    A whole chunk of a prompt that ends at the longest context, beside a full batch of mean requests.
    """
    case = proof.case
    return case.roofline.at(proof.ends.band.high).wide_step_s(
        prefill=case.batched_tokens,
        reach=case.context,
        decodes=case.slots if case.keeps_cache else 0,
        context=case.order.request_tokens,
        width=case.width,
    )


def _stall(basis: Basis) -> Derived:
    step = slowest_step_s(basis.proof)
    return Derived(
        value=math.ceil(_STEPS * (step + _FIRST_USE_S)) - NOTICED_S,
        inputs={"slowest_step_s": round(step, 1), "noticed_s": NOTICED_S},
    )


def _stall_bounds(basis: Basis) -> Bounds:
    return Bounds(
        low=math.ceil(slowest_step_s(basis.proof)),
        high=_MOST_S,
        below="a replica would be restarted in the middle of the slowest step that the proof allows",
        above="a replica that hangs would keep its requests for longer than a day",
        instead_below="lower overrides.max_num_batched_tokens",
    )


DEFINITIONS = (
    Definition(
        key="stall_s",
        unit="s",
        formula=f"{_STEPS} x (slowest step + {_FIRST_USE_S} for kernels that are compiled at their first use) - "
        f"{NOTICED_S} until it has ended; slowest step = a whole chunk of a prompt at the end of the longest context, "
        "beside a full batch, at the slow end of the band",
        derive=_stall,
        used="argument of the container that watches the engine, --stall-s: after so long without a step while "
        "it holds requests, the liveness probe fails. A simulator gets the prefill of its longest prompt on top",
        bounds=_stall_bounds,
    ),
)
