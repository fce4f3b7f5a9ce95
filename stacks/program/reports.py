"""What a preview prints beside the resources."""

from __future__ import annotations

import pulumi

from stacks.plan.site_plan import SitePlan


def show(plan: SitePlan) -> None:
    """The block of each model's proof, where the replicas find room, and what tenants' limits let through."""
    for text in plan.texts:
        pulumi.log.info(text)
