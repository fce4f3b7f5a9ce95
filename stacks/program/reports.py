"""What a preview prints beside the resources."""

from __future__ import annotations

import pulumi

from stacks.plan.site_plan import SitePlan


def show(plan: SitePlan) -> None:
    """The block of each model's proof, and where the replicas find room."""
    for text in plan.texts:
        pulumi.log.info(text)
