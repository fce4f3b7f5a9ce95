"""Enforces the rules of `policy` in the running program."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from policy import rules_file, transform
from stacks.plan.site_plan import SitePlan


def enforced(stack: str, plan: SitePlan) -> AbstractContextManager[None]:
    """Holds what the running program declares inside to the rules, before anything of it is registered.

    Raises SiteError for a rules file that is wrong, and RulesError with every broken rule at the end of the block.
    """
    rules = rules_file.read(Path(), stack)
    facts = rules.facts(
        stack,
        plan.load_s,
        plan.replaced_registries,
        plan.machine_secrets,
        plan.pepper,
        plan.locked_images,
        spans_nodes=plan.site.spans_nodes,
    )
    return transform.enforced(facts, rules.waivers, rules_file.today())
