"""`diff`: what differs between two revisions, or two rendered folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from policy.model import Resource
from sitectl.change import changes, cold_starts, guarantees, headroom, machine_changes, report, support
from sitectl.change.machine_changes import Shown
from sitectl.offline import checkout, manifests_folder
from sitectl.output import kept_files, markdown, words
from sitectl.shell import revisions
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, site_names
from sitectl.shell.errors import Exit, SitectlError
from stacks.plan.site_plan import SitePlan

MORE = """\
Renders both sides with their own program and shows, site by site, which objects are added, changed and removed, each
changed field as text, each key and config of machines that changes, and the effect on users of the site. The effect
follows from Kubernetes' own rules; `plan` asks the engine, which also knows the cluster.

\b
  python -m sitectl diff main                    main and the files as they are
  python -m sitectl diff v1.2.0 HEAD             two revisions
  python -m sitectl diff /tmp/before /tmp/after  two folders of `render`
"""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of the comparison."""

    resources: dict[str, list[Resource]]
    """What each site declares."""
    plans: dict[str, SitePlan | None] = field(default_factory=dict)
    """The plan of each site's own file, None where today's program does not take it; empty for a rendered folder."""
    machines: dict[str, Shown] = field(default_factory=dict)
    """The machines of each site."""


@click.command(cls=Command, epilog=MORE)
@click.argument(
    "before", type=click.Path(), metavar="REV_A|DIR_A", help="a git revision, or a folder that render wrote"
)
@click.argument(
    "after",
    required=False,
    type=click.Path(),
    metavar="[REV_B|DIR_B]",
    help="the other one (default: the files as they are now)",
)
@click.option(
    "--site", "only", multiple=True, metavar="SITE", shell_complete=site_names, help="only this site; may be repeated"
)
@click.option("--markdown", "file", type=PATH, metavar="FILE", help="also write it as Markdown that is safe to post")
@pass_context
def command(
    context: CommandContext, *, before: str, after: str | None, only: tuple[str, ...], file: Path | None
) -> int:
    kept_files.markdown_file("--markdown", file)
    left, right = _sides(context, before, after)
    sites = sorted({*left.resources, *right.resources})
    reports, lines = [], []
    for site in only or sites:
        if site not in sites:
            raise SitectlError(
                "no such site on either side",
                got=site,
                allowed=", ".join(sites),
                fix="name one of these with --site",
                status=Exit.USAGE,
            )
        old, new = left.resources.get(site, []), right.resources.get(site, [])
        changed = changes.between(old, new)
        site_report = _report(site, changed, left, right)
        reports.append((site_report, changed))
        moved = any(row.moved for row in site_report.headroom)
        if not changed and not moved and site_report.empty:
            lines.append(f"Site {site}: no change")
            continue
        state = "" if old and new else " (a new site)" if new else " (the site is removed)"
        lines += [
            f"Site {site}{state}",
            *(f"  {line}" for line in words.difference(changed)),
            "",
            words.plan(site_report),
        ]
    kept_files.write(file, markdown.document([site_report for site_report, _ in reports]))
    context.say("\n".join(lines), {site_report.site: _record(site_report, changed) for site_report, changed in reports})
    return int(Exit.OK)


def _report(site: str, changed: list[changes.Change], before: Side, after: Side) -> report.SiteReport:
    """The change with the price and the targets of the site's own files, where there are any."""
    declared = [*before.resources.get(site, []), *after.resources.get(site, [])]
    old, new = before.plans.get(site), after.plans.get(site)
    priced = new or old
    sides = [side.machines.get(site, {}) for side in (before, after)]
    unseen = None in sides and any(sides)
    return report.report(
        site,
        changed,
        report.callers_of(declared),
        keys=report.keys_of(declared),
        price=report.price_of(priced.site.cluster.gpu, priced.site.prices) if priced else None,
        headroom=headroom.between(old, new) if new else [],
        starts=cold_starts.of_plan(new),
        knows_site=priced is not None,
        machines=machine_changes.between(*sides),
        machines_unseen=machine_changes.NOT_COMPARED if unseen else "",
        guaranteed=guarantees.between(old, new),
        broken=support.between(old, new),
    )


def _sides(context: CommandContext, before: str, after: str | None) -> tuple[Side, Side]:
    first = Path(before)
    if first.is_dir() and after and Path(after).is_dir():
        return _rendered(first), _rendered(Path(after))
    if any(_is_rendered(Path(side)) for side in (before, after) if side):
        raise SitectlError(
            "a rendered folder is compared with a rendered folder alone",
            got=f"{before} and {after or 'the files as they are'}",
            fix="render the other side too, in a checkout of it: python -m sitectl render --out DIR",
            status=Exit.USAGE,
        )
    project = context.project
    with context.progress.layer(f"render {before}"), revisions.tree(project, before) as tree:
        left = _declared(tree, before, context)
    if after is None:
        with context.progress.layer("render the files as they are"):
            return left, _declared(project, "the files as they are", context)
    with context.progress.layer(f"render {after}"), revisions.tree(project, after) as tree:
        return left, _declared(tree, after, context)


def _declared(project: Path, side: str, context: CommandContext) -> Side:
    files = checkout.site_files(project)
    declared = checkout.declare(project, files, context.progress)
    wrong = {site: result.error for site, result in declared.items() if result.error}
    if wrong:
        errors = "\n".join(f"{site}: {error}" for site, error in wrong.items())
        raise SitectlError(
            f"{side} cannot be rendered:\n{errors}",
            fix="correct the site first: python -m sitectl validate",
            status=Exit.REFUSED,
        )
    return Side(
        resources={site: result.resources for site, result in declared.items()},
        machines={site: result.machines for site, result in declared.items()},
        plans={site: headroom.plan_of(file.read_text(), file.name, file.parent) for site, file in files.items()},
    )


def _is_rendered(folder: Path) -> bool:
    return (folder / manifests_folder.MARK).exists() or any(folder.glob(f"*/{manifests_folder.MARK}"))


def _rendered(folder: Path) -> Side:
    """Sites below a folder of `render`; also the folder of one site."""
    folders = [path.parent for path in sorted(folder.glob(f"*/{manifests_folder.MARK}"))]
    sites = {path.name: path for path in ([folder] if (folder / manifests_folder.MARK).exists() else folders)}
    if not sites:
        raise SitectlError(
            f"{folder} holds no rendered site", fix=f"python -m sitectl render --out {folder}", status=Exit.USAGE
        )
    return Side(
        resources={site: manifests_folder.read(path) for site, path in sites.items()},
        machines={site: manifests_folder.read_machines(path) for site, path in sites.items()},
    )


def _record(site_report: report.SiteReport, changed: list[changes.Change]) -> dict[str, Any]:
    return {
        **site_report.record(),
        "objects": [
            {
                "op": change.op,
                "object": change.label,
                "fields": words.changed_fields(change),
            }
            for change in changed
        ],
    }
