"""Checks of a site that is valid by itself: its answers with its times, its versions with its settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from floor.problems import Problem
from floor.spec import MOST_SECONDS
from stacks.facts.versions import Versions
from stacks.plan import conflicts
from stacks.plan.models import RevisionPlan
from stacks.plan.settings.gateway import token_s
from stacks.site.model import SiteConfig
from stacks.site.reading.origins import Origin


def cut_answers(plan: RevisionPlan) -> Iterator[Problem]:
    """Answers of the declared load that their request's time ends, even where a replica has nothing else to do."""
    load, case = plan.proof.order.load, plan.proof.case
    timeout_s = plan.spec.request_timeout_s
    if load is None or plan.proof.order.model.task != "generate":
        return
    tokens = load.answer_tokens.p95
    least_s = tokens * case.token_s(1)
    if least_s > timeout_s:
        enough = math.ceil(tokens * token_s(case))
        raised = f"write {enough} or more, or " if enough <= MOST_SECONDS else ""
        yield Problem(
            path=("models", plan.model, "request_timeout_s"),
            what=f"ends answers that the declared load has: {tokens:,.0f} tokens take {least_s:,.0f} s or more",
            got=str(timeout_s),
            fix=f"{raised}lower load.answer_tokens.p95",
        )


def incompatible(site: SiteConfig, pins: Versions, origins: Mapping[str, Origin]) -> Iterator[Problem]:
    """Rows of the compatibility table that speak about the pinned versions and this site."""
    for conflict in conflicts.conflicts(pins, site):
        named = [(fact, value, key) for fact, (value, key) in conflict.named.items()]
        combination = " with ".join(f"{fact} {value} ({origins.get(key, key)})" for fact, value, key in named)
        own = next((key for _, _, key in named if not key.startswith(("versions.", "catalogue."))), "")
        theirs = origins.get(named[0][2])
        yield Problem(
            path=tuple(own.split(".")) if own else tuple(named[0][2].split(".")[1:]),
            what=f"{conflict.row.verdict}: {combination}: {conflict.row.text}",
            fix=f"{conflict.row.fix} (stacks/facts/compatibility.yaml: {conflict.row.id}; "
            f"source: {conflict.row.source})",
            file="" if own or not theirs else theirs.file,
            line=None if own or not theirs else theirs.line,
        )
