"""`validate`: is a site's file valid, by itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from floor.counts import counted
from floor.problems import SiteError
from policy import rules_file
from sitectl.offline import checkout, warned
from sitectl.offline.checkout import Told
from sitectl.output.code_scanning import Result, format_option, sarif, workflow_commands
from sitectl.shell import invocation
from sitectl.shell.command import PATH, Command, CommandContext, pass_context, site_names
from stacks.plan.by_hand import by_hand
from stacks.plan.site_plan import plan_file

MORE = """\
Reads Pulumi.SITE.yaml, and rules.SITE.yaml next to it if there is one. Needs no engine, no cluster, no network.
`yours to make` lists what the site needs and `up` does not make; the pages on its keys have how and when.

\b
  python -m sitectl validate             all sites
  python -m sitectl validate berlin      one of them
  python -m sitectl validate FILE        a file by its path, wherever it is
  python -m sitectl validate --format sarif > validate.sarif

exit status 1: a site is invalid; the output shows where and how to fix it. 0 with warnings: it works, but is unwise
"""


SITE_FILE = "site-file"
RULES = {SITE_FILE: "A site's files hold what the program takes, and what the proof of its models allows."}


def names_or_files(context: click.Context, argument: click.Parameter, incomplete: str) -> Sequence[Any]:
    """Sites, else files, for the completion of a shell."""
    return site_names(context, argument, incomplete) or PATH.shell_complete(context, argument, incomplete)


@click.command(cls=Command, epilog=MORE)
@click.argument(
    "sites",
    nargs=-1,
    metavar="[SITE|FILE]...",
    shell_complete=names_or_files,
    help="names of sites, or paths (default: all)",
)
@format_option
@pass_context
def command(context: CommandContext, *, sites: tuple[str, ...], form: str) -> int:
    report = checkout.tell(_files(context, sites), lambda name, file: _check(file.parent, name, file))
    if form != "text":
        log = sarif(_results(report.records), RULES)
        context.say(workflow_commands(log) if form == "github" else json.dumps(log, indent=2), log)
        return report.status
    lines, wrong = report.lines, report.wrong
    files = report.records
    warnings = sum(len(record["warnings"]) for record in files.values())
    count = counted(len(files), "site")
    valid = f"{count}: all valid" + (f", {counted(warnings, 'warning')}" if warnings else "")
    lines.append(valid if not wrong else f"{count}: {len(wrong)} not valid ({', '.join(wrong)})")
    # `proof` takes names of the checkout's sites alone.
    if not wrong and not any(map(_is_path, sites)):
        lines.append(invocation.next_step("proof", sites, context.named))
    context.say("\n".join(lines), report.records)
    return report.status


def _is_path(name: str) -> bool:
    return os.sep in name or name.endswith((".yaml", ".yml"))


def _files(context: CommandContext, named: Sequence[str]) -> dict[str, Path]:
    """Files by site; a name with a separator or a suffix is a path."""
    paths = [Path(name) for name in named if _is_path(name)]
    sites = [name for name in named if not _is_path(name)]
    files = checkout.chosen_sites(context.project, sites) if sites or not paths else {}
    return files | {checkout.site_of(path): context.folder / path for path in paths}


def _check(project: Path, name: str, file: Path) -> Told:
    lines: list[str] = []
    problems: list[dict[str, Any]] = []
    warnings: list[dict[str, Any]] = []
    own: list[str] = []
    try:
        plan = plan_file(file)
        lines += [f"{file.name}: valid; {_size(plan.site)}", *warned.lines(plan, project)]
        warnings = warned.records(plan.warnings, plan.file, project)
        own = by_hand(plan)
        lines += ["  yours to make:", *(f"    {line}" for line in own)] if own else []
    except SiteError as error:
        lines.append(checkout.relative(str(error), project))
        problems += warned.records(error.problems, error.origin, project)
    try:
        rules_file.read(project, name)
    except SiteError as error:
        lines.append(checkout.relative(str(error), project))
        problems += warned.records(error.problems, error.origin, project)
    record = {"valid": not problems, "file": file.name, "problems": problems, "warnings": warnings, "yours": own}
    return Told(lines=lines, record=record, good=not problems)


def _results(records: Mapping[str, Any]) -> Iterator[Result]:
    for record in records.values():
        for level in ("error", "warning"):
            for problem in record["problems" if level == "error" else "warnings"]:
                yield Result(
                    rule=SITE_FILE, level=level, text=problem["text"], file=problem["file"], line=problem["line"]
                )


def _size(site: Any) -> str:
    keys = sum(len(tenant.keys) for tenant in site.tenants.values())
    return f"{counted(len(site.models), 'model')}, {counted(len(site.tenants), 'tenant')} with {counted(keys, 'key')}"
