"""A site's file before and after a change, by today's program, for what a preview of the engine cannot know.

No object has a latency target, a guarantee or a promised day, and machines' configs are secrets, of which a preview
shows no part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from floor.problems import SiteError
from sitectl.change import guarantees, headroom, machine_changes, support
from sitectl.change.machine_changes import Shown
from sitectl.offline.mocked_machines import pinned_manifest
from sitectl.shell import revisions
from sitectl.shell.errors import SitectlError
from stacks.plan.shown_machines import shown_machines
from stacks.plan.site_plan import SitePlan, plan_file


def of_file(project: Path, file: Path, since: str | None) -> dict[str, Any]:
    """Entries of a saved preview: SLO headroom, guarantees, models that are promised, and the site's machines.

    since: a revision of git, None for the last commit, if there is one. Raises SitectlError for a revision that is
    named and not there.
    """
    before, after = _plans(project, file, since)
    return {
        "headroom": [row.record() for row in headroom.between(before, after)] if after else [],
        "guarantees": guarantees.between(before, after),
        "support": support.between(before, after),
        "machines": [change.record() for change in machine_changes.between(_shown(before), _shown(after))],
    }


def _plans(project: Path, file: Path, since: str | None) -> tuple[SitePlan | None, SitePlan | None]:
    """The site's plan at that revision and now, each None where there is none; both for a file that is not valid."""
    try:
        after = plan_file(file)
    except SiteError:
        return None, None
    try:
        text = revisions.text(project, since or "HEAD", file.name)
    except SitectlError:
        if since:
            raise
        text = None
    return headroom.plan_of(text, file.name, file.parent), after


def _shown(plan: SitePlan | None) -> Shown:
    if plan is None:
        return None
    return shown_machines(plan.machines, pinned_manifest(plan.site, plan.versions)) if plan.machines else {}
