"""What prompt caches that each tenant has of its own cost: hits on prefixes that tenants have in common.

Where a salt keeps tenants apart, an engine computes and keeps such a prefix, as a tool's long system prompt, once for
each tenant. A tenant finds its copy as long as it asks again before the least recently used blocks are dropped
(`kept`). The copies take room, of which there is so much less for what requests add: they are kept for the time that
fills what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stacks.proof.case import Case
from stacks.proof.kept import kept_until
from stacks.proof.offload import gpu_kept_s, offload_kept_s


@dataclass(frozen=True)
class TenantCaches:
    """Caches side by side under the declared load, of which each tenant uses its own."""

    count: int
    kept_s: float
    """Seconds for which one keeps what was not asked for."""
    asked_s: float
    """Seconds between two requests of a tenant for one replica, on average."""
    lost: float
    """Share of the prompts' tokens, 0 to 1, that one cache for all would hold and these do not, at most: as if tenants
    asked equally often, and pickers sent their requests to all replicas alike."""


def tenant_caches(case: Case, count: int) -> TenantCaches | None:
    """What `count` caches lose; None for a single cache, for tenants without a common prefix, and without a load that
    the case carries."""
    load = case.order.load
    if load is None or not load.common_prefix or count < 2 or case.fit_problems or not case.steady.computes:
        return None
    fresh, prefix = (load.prompt_tokens.mean * share for share in (1 - load.prefix_hit, load.common_prefix))
    alone_s = case.replicas / load.requests_per_s
    asked_s, kept = alone_s * count, (gpu_kept_s(case), offload_kept_s(case))
    sizes = (prefix / (fresh + load.answer_tokens.mean), prefix / fresh)
    kept_s = max(_beside_copies_s(time_s, asked_s, size) for time_s, size in zip(kept, sizes, strict=True))
    lost = math.exp(-kept_s / asked_s) - math.exp(-max(kept) / alone_s)
    return TenantCaches(count, kept_s, asked_s, load.common_prefix * max(0.0, lost))


def _beside_copies_s(kept_s: float, asked_s: float, size: float) -> float:
    """How long is kept what was kept for `kept_s` without copies of the prefix. size: of one, in requests' new tokens.

    There are asked_s times as many tenants as requests a second, of which those have a copy that asked meanwhile.
    """
    if math.isinf(kept_s):
        return kept_s
    return kept_until(lambda time_s: time_s + asked_s * size * -math.expm1(-time_s / asked_s), kept_s, kept_s)
