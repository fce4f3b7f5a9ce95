"""What a site may set for a tier."""

from __future__ import annotations

from pydantic import Field

from floor.spec import Spec


class TierSpec(Spec):
    """The priority of requests from a tier's tenants, compared with those of others."""

    priority: int = Field(ge=-1000, le=1000)
    """While a model is full, requests wait by it, the highest first; without a tier it is 0. Queues below 0 are
    shorter, and who finds a full one gets 429."""
