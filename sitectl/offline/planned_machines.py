"""The machines of a site's file before and after a change, by today's program, for a preview of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sitectl.change import headroom, machine_changes
from sitectl.change.machine_changes import Shown
from sitectl.offline.mocked_machines import pinned_manifest
from stacks.plan.shown_machines import shown_machines
from stacks.plan.site_plan import SitePlan


def of_file(project: Path, file: Path, since: str | None) -> list[dict[str, Any]]:
    """Records of what changes on machines that the site has at both states.

    The engine cannot know it: configs are secrets, of which a preview shows no part. since: as for `headroom.of_file`.
    """
    before, after = headroom.plans_of_file(project, file, since)
    return [change.record() for change in machine_changes.between(_shown(before), _shown(after))]


def _shown(plan: SitePlan | None) -> Shown:
    if plan is None:
        return None
    return shown_machines(plan.machines, pinned_manifest(plan.site, plan.versions)) if plan.machines else {}
