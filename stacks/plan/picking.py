"""What a model's pickers are set to: when a replica is full, and how many requests wait in front of the model."""

from __future__ import annotations

from collections.abc import Mapping

from components.specs.inference_pool import InferencePoolSpec, PickerPlan, PriorityBand
from components.specs.model_server import ModelServerPlan
from stacks.plan.settings.definition import Setting
from stacks.proof.adapter_turns import turns
from stacks.proof.case import Case
from stacks.site.checks.forms import memory_of

# A picker keeps the body of a request that waits as it came and once more decoded, beside all that it does otherwise.
_SHARE_OF_MEMORY = 4
_SHARE_OF_JOBS = 4


def picker_plan(
    case: Case,
    pool: InferencePoolSpec,
    server: ModelServerPlan,
    settings: Mapping[str, Setting],
    priorities: set[int],
) -> PickerPlan:
    """The figures of one model's pickers, on a site whose tiers have these priorities."""
    shedding = settings["picker_shedding_threshold"].whole
    # The gateway's bound, less what runs, and less what the replicas still queue themselves.
    waiting = settings["gateway_parallel_requests"].whole - case.replicas * case.slots * case.layout.data
    room = max(1, waiting - case.replicas * shedding * case.layout.data)
    return PickerPlan(
        block_tokens=server.block_tokens,
        prefix_tokens=server.max_model_len,
        kv_blocks=server.kv_blocks,
        queue_threshold=settings["picker_queue_threshold"].whole,
        shedding_queue_threshold=shedding,
        kv_threshold=settings["picker_kv_threshold"].number,
        bands=bands(room, pool.pickers, priorities) if pool.queues else (),
        adapters_turn=turns(case.order.adapters) is not None,
        held_bytes=int(memory_of(pool.memory) or 0) // _SHARE_OF_MEMORY,
    )


def bands(room: int, pickers: int, priorities: set[int]) -> tuple[PriorityBand, ...]:
    """A queue for each priority of a site, the highest first; tenants without a tier have 0.

    room: requests that may wait in front of the model. From 0 on a queue has all of it in each picker. Those below 0
    share a quarter of it over all pickers: a picker lets go all that it holds between two readings of metrics, and what
    others wait for in the replicas should hold few jobs.
    """
    below = sum(priority < 0 for priority in priorities)
    return tuple(
        PriorityBand(
            priority=priority,
            requests=room if priority >= 0 else max(1, room // (_SHARE_OF_JOBS * pickers * below)),
        )
        for priority in sorted(priorities | {0}, reverse=True)
    )
