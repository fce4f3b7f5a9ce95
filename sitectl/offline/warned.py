"""Warnings of a valid site, for the commands that show them: the third state next to valid and invalid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from floor.problems import Problem, SiteError
from sitectl.change import weights_room
from sitectl.change.changes import of_preview
from sitectl.offline import checkout
from stacks.plan.site_plan import SitePlan, plan_file


def lines(plan: SitePlan, project: Path) -> list[str]:
    """Each warning in the form of an error, indented below its site."""
    return [
        f"  {line}"
        for warning in plan.warnings
        for line in checkout.relative(f"warning: {warning.text(plan.file)}", project).splitlines()
    ]


def records(problems: Iterable[Problem], origin: str, project: Path) -> list[dict[str, Any]]:
    """Errors or warnings of one file as `--json` gives them."""
    return [
        {
            "key": problem.key,
            "file": checkout.relative(problem.file or origin, project),
            "line": problem.line,
            "what": problem.what,
            "got": problem.got,
            "allowed": problem.allowed,
            "fix": problem.fix,
            "text": checkout.relative(problem.text(origin), project),
        }
        for problem in problems
    ]


def of_file(file: Path, project: Path, preview: Mapping[str, Any]) -> list[str]:
    """Warnings of a stack file and of what its preview changes, one text each; none of a file that is not valid, which
    the engine reports."""
    try:
        plan = plan_file(file)
    except SiteError:
        return []
    changed = of_preview(preview) if "steps" in preview else []
    warnings = [*plan.warnings, *weights_room.problems(plan, changed)]
    return [checkout.relative(warning.text(plan.file), project) for warning in warnings]
