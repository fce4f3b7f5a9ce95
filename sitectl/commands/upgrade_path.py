"""`upgrade-path`: the steps from the versions that run to those that are pinned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from floor.counts import counted
from floor.problems import file_error
from sitectl import checkout, revisions
from sitectl.command import Command, CommandContext, pass_context, site_names
from sitectl.errors import SitectlError
from stacks.facts import versions
from stacks.plan import conflicts, upgrades
from stacks.plan.site_plan import plan_file
from stacks.plan.upgrades import Step

MORE = """\
Reads stacks/facts/versions.yaml at a git revision, as what runs, and as it is now, as what is wanted. Prints one step
after the other, each a change of that file and a `pulumi up`. After each of them, the parts go together by
stacks/facts/compatibility.yaml. What must be true before and after, and how far the step goes back, is from
stacks/facts/upgrades.yaml. A step that no publisher supports is refused, and the fix names the step in between.

\b
  python -m sitectl upgrade-path prod                  from the last commit
  python -m sitectl upgrade-path prod --from v1.2.0    from a tag or commit

Only the parts that the site's file lets the program install have steps. The machines themselves are asked by
`pulumi preview`, which refuses a step over a minor version of Talos or Kubernetes whatever git states.
"""
_FILE = str(versions.FILE.relative_to(Path(__file__).parents[2]))


@click.command(cls=Command, epilog=MORE)
@click.argument("site", shell_complete=site_names, help="name of the site, which is its stack")
@click.option(
    "--from",
    "revision",
    default="HEAD",
    show_default=True,
    metavar="REVISION",
    help="the git revision whose versions run on the site",
)
@pass_context
def command(context: CommandContext, *, site: str, revision: str) -> int:
    plan = plan_file(checkout.site_files(context.project, [site])[site])
    text = revisions.text(context.project, revision, _FILE)
    if text is None:
        raise SitectlError(
            f"{_FILE} is not in {revision}", got=revision, fix="name a revision of this project that has the file"
        )
    before = versions.of_text(text, f"{_FILE} at {revision}", instead=plan.versions)
    steps, problems = upgrades.steps_of(plan.site, before, plan.versions)
    if problems:
        raise file_error(_FILE, problems)
    context.say(_words(site, revision, steps), {"site": site, "from": revision, "steps": [_record(s) for s in steps]})
    return 0


def _record(step: Step) -> dict[str, Any]:
    return {
        "parts": [part.part for part in step.parts],
        "changes": {fact: {"runs": now, "wanted": then} for fact, (now, then) in step.changes.items()},
        "pins": step.pins,
        "before": [part.before for part in step.parts],
        "by_hand": [{"why": row.text, "do": row.fix, "source": row.source} for row in step.by_hand],
        "after": [part.after for part in step.parts],
        "way_back": step.way_back,
    }


def _words(site: str, revision: str, steps: list[Step]) -> str:
    if not steps:
        return f"{site}: no step: the versions of {revision} are those that are pinned now"
    lines = [f"{site}: {counted(len(steps), 'step')} from {revision} to the versions that are pinned now"]
    for number, step in enumerate(steps, start=1):
        lines += ["", f"{number}. {', together with '.join(part.part for part in step.parts)}"]
        lines += _rows("versions", _changed(step.changes))
        lines += _rows("by hand", [f"{row.text}: {row.fix} (source: {row.source})" for row in step.by_hand])
        lines += _rows("before", [part.before for part in step.parts])
        lines += _rows("after", [part.after for part in step.parts])
        lines += _rows("way back", step.way_back)
    return "\n".join(lines)


def _changed(changes: Mapping[str, tuple[str, str]]) -> list[str]:
    return [
        f"{conflicts.KEYS[fact].removeprefix('versions.')}: {now} -> {then}" for fact, (now, then) in changes.items()
    ]


def _rows(head: str, texts: list[str]) -> list[str]:
    return [f"   {head if number == 0 else '':<9} {text}" for number, text in enumerate(texts)]
