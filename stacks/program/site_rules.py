"""Enforces the rules of `policy` in the running program."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from policy import transform
from stacks.site import rules_file
from stacks.site.model import SiteConfig


def enforced(stack: str, site: SiteConfig) -> AbstractContextManager[None]:
    """Holds what the running program declares inside to the rules, before anything of it is registered.

    Raises SiteError for a rules file that is wrong, and RulesError with every broken rule at the end of the block.
    """
    rules = rules_file.read(Path(), stack)
    return transform.enforced(rules_file.facts(stack, rules, site), rules.waivers, rules_file.today())
