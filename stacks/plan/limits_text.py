"""What tenants may take by their limits, and what they are guaranteed, as text for people."""

from __future__ import annotations

from collections.abc import Mapping

from stacks.plan.batch_window import describe_windows
from stacks.plan.cache_shares import describe_shares
from stacks.plan.gpu_time import describe_gpu_time
from stacks.plan.guarantees import describe_guarantees, draws
from stacks.plan.limits import describe_limits, exceedings
from stacks.plan.models import ModelPlan
from stacks.plan.overspending import describe_overspending, overspendings
from stacks.site.model import SiteConfig


def describe_all_limits(site: SiteConfig, models: Mapping[str, ModelPlan]) -> str:
    """All lines, budgets, and what is left for jobs; empty where the site limits and guarantees nothing."""
    counted = [*describe_limits(exceedings(site, models)), *describe_gpu_time(site, models)]
    rest = [*describe_shares(site, models), *describe_guarantees(draws(site, models))]
    limits = "\n".join([*(counted or ["limits: of tokens, for no tenant"] if rest else counted), *rest])
    budgets = "\n".join(describe_overspending(overspendings(site, models)))
    return "\n\n".join(filter(None, [limits, budgets, describe_windows(site, models)]))
