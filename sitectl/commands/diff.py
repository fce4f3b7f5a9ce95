"""`diff`: what differs between two revisions, or two rendered folders."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from components.rules.model import Resource
from sitectl import changes, checkout, manifests_folder, markdown, report, revisions, words
from sitectl.errors import Exit, SitectlError

MORE = """\
Renders both sides with their own program and says, a site at a time, which objects are added, changed and removed,
each changed field in words, and what that means for those who use the site. The meaning is what Kubernetes' own rules
give; `plan` asks the engine, which also knows the cluster.

  python -m sitectl diff main                    main against the files as they are
  python -m sitectl diff v1.2.0 HEAD             two revisions
  python -m sitectl diff /tmp/before /tmp/after  two folders of `render`
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="REV_A|DIR_A", help="a git revision, or a folder that render wrote")
    parser.add_argument(
        "after", nargs="?", metavar="REV_B|DIR_B", help="the other one (default: the files as they are now)"
    )
    parser.add_argument("--site", action="append", metavar="SITE", help="this site alone; may be repeated")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write it as Markdown that is safe to post")


Side = dict[str, list[Resource]]


def run(context: Any, arguments: argparse.Namespace) -> int:
    before, after = _sides(context, arguments)
    wanted = arguments.site or sorted({*before, *after})
    reports, lines = [], []
    for site in wanted:
        if site not in before and site not in after:
            raise SitectlError(
                "no such site on either side",
                got=site,
                allowed=", ".join(sorted({*before, *after})),
                status=Exit.USAGE,
            )
        old, new = before.get(site, []), after.get(site, [])
        found = changes.between(old, new)
        one = report.report(site, found, report.callers_of([*old, *new]))
        reports.append((one, found))
        if not found:
            lines.append(f"Site {site}: no change")
            continue
        state = " (a new site)" if site not in before else " (the site is removed)" if site not in after else ""
        lines += [f"Site {site}{state}", *(f"  {line}" for line in words.difference(found)), "", words.plan(one)]
    if arguments.markdown:
        arguments.markdown.write_text(markdown.document([one for one, _ in reports]))
    context.say("\n".join(lines), {one.site: _record(one, found) for one, found in reports})
    return int(Exit.OK)


def _sides(context: Any, arguments: argparse.Namespace) -> tuple[Side, Side]:
    first = Path(arguments.before)
    if first.is_dir() and arguments.after and Path(arguments.after).is_dir():
        return _folder(first), _folder(Path(arguments.after))
    project = context.project
    with context.progress.layer(f"render {arguments.before}"), revisions.tree(project, arguments.before) as tree:
        before = _declared(tree, arguments.before, context)
    if arguments.after is None:
        with context.progress.layer("render the files as they are"):
            return before, _declared(project, "the files as they are", context)
    with context.progress.layer(f"render {arguments.after}"), revisions.tree(project, arguments.after) as tree:
        return before, _declared(tree, arguments.after, context)


def _declared(project: Path, side: str, context: Any) -> Side:
    found = checkout.declare(project, checkout.site_files(project), context.progress)
    wrong = {site: one.error for site, one in found.items() if one.error}
    if wrong:
        said = "\n".join(f"{site}: {error}" for site, error in wrong.items())
        raise SitectlError(
            f"{side} cannot be rendered:\n{said}",
            fix="mend the site first: python -m sitectl validate",
            status=Exit.REFUSED,
        )
    return {site: one.resources for site, one in found.items()}


def _folder(folder: Path) -> Side:
    """Sites below a folder of `render`; also the folder of one site."""
    if (folder / manifests_folder.MARK).exists():
        return {folder.name: manifests_folder.read(folder)}
    sites = {
        path.parent.name: manifests_folder.read(path.parent)
        for path in sorted(folder.glob(f"*/{manifests_folder.MARK}"))
    }
    if not sites:
        raise SitectlError(
            f"{folder} holds no rendered site", fix=f"python -m sitectl render --out {folder}", status=Exit.USAGE
        )
    return sites


def _record(one: report.SiteReport, found: list[changes.Change]) -> dict[str, Any]:
    return {
        **one.record(),
        "objects": [
            {
                "op": change.op,
                "object": change.label,
                "fields": words.changed_fields(change),
            }
            for change in found
        ],
    }
