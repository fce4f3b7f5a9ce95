"""The plan of one site that a command is about."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from floor.problems import SiteError
from sitectl.offline import checkout
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.site_plan import LockKind, SitePlan, plan_file


def plan_of(project: Path, site: str, *, without: Collection[LockKind] = ()) -> SitePlan:
    """Of the site of that name. Raises SitectlError where there is none, or where its file is not valid.

    without: locks that the site need not have yet.
    """
    file = checkout.site_files(project, [site])[site]
    try:
        return plan_file(file, without=without)
    except SiteError as error:
        raise SitectlError(
            f"the site is not valid:\n{checkout.relative(str(error), project)}",
            fix=f"python -m sitectl validate {site}",
            status=Exit.REFUSED,
        ) from None
