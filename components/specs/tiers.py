"""What a site may set for a tier."""

from __future__ import annotations

from pydantic import Field

from floor.spec import Spec


class TierSpec(Spec):
    """The priority of requests from a tier's tenants, compared with those of others."""

    priority: int = Field(ge=-1000, le=1000)
    """Below 0, requests get 429 while a model's replicas are saturated; from 0 on and without a tier they do not."""
    admitted_below: float = Field(default=1, ge=0.001, le=1)
    """Of models with `pool.admission: pages`: requests of this tier are admitted while those of all tiers hold less
    than this share of the model's room, and get 429 above it. What is above it stays free for the other tiers."""
