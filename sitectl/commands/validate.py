"""`validate`: is a site's file valid, by itself."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from floor.counts import counted
from floor.problems import SiteError
from policy import rules_file
from sitectl import checkout, invocation, warned
from sitectl.checkout import Told
from sitectl.code_scanning import FORMATS, Result, sarif, workflow_commands
from stacks.plan.site_plan import plan_file

MORE = """\
Reads Pulumi.SITE.yaml, and rules.SITE.yaml next to it if there is one. Needs no engine, no cluster, no network.

  python -m sitectl validate             all sites
  python -m sitectl validate berlin      one of them
  python -m sitectl validate FILE        a file by its path, wherever it is
  python -m sitectl validate --format sarif > validate.sarif

exit status 1: a site is invalid; the output says where and how to fix it. 0 with warnings: it works, but is unwise
"""


SITE_FILE = "site-file"
RULES = {SITE_FILE: "A site's files say what the program takes, and what the proof of its models allows."}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", nargs="*", metavar="SITE|FILE", help="names of sites, or paths (default: all)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="for people, code scanning, or GitHub's jobs")


def run(context: Any, arguments: argparse.Namespace) -> int:
    told = checkout.tell(_files(context, arguments.site), lambda name, file: _check(file.parent, name, file))
    if arguments.format != "text":
        log = sarif(_results(told.records), RULES)
        context.say(workflow_commands(log) if arguments.format == "github" else json.dumps(log, indent=2), log)
        return told.status
    lines, wrong = told.lines, told.wrong
    files = told.records
    warnings = sum(len(record["warnings"]) for record in files.values())
    count = counted(len(files), "site")
    valid = f"{count}: all valid" + (f", {counted(warnings, 'warning')}" if warnings else "")
    lines.append(valid if not wrong else f"{count}: {len(wrong)} not valid ({', '.join(wrong)})")
    # `proof` takes names of the checkout's sites alone.
    if not wrong and not any(map(_is_path, arguments.site)):
        lines.append(invocation.next_step("proof", arguments.site, arguments.project))
    context.say("\n".join(lines), told.records)
    return told.status


def _is_path(name: str) -> bool:
    return os.sep in name or name.endswith((".yaml", ".yml"))


def _files(context: Any, named: list[str]) -> dict[str, Path]:
    """Files by site; a name with a separator or a suffix is a path."""
    paths = [Path(name) for name in named if _is_path(name)]
    sites = [name for name in named if not _is_path(name)]
    files = checkout.chosen_sites(context.project, sites) if sites or not paths else {}
    return files | {checkout.site_of(path): context.folder / path for path in paths}


def _check(project: Path, name: str, file: Path) -> Told:
    lines: list[str] = []
    problems: list[dict[str, Any]] = []
    warnings: list[dict[str, Any]] = []
    try:
        plan = plan_file(file)
        lines += [f"{file.name}: valid; {_size(plan.site)}", *warned.lines(plan, project)]
        warnings = warned.records(plan.warnings, plan.file, project)
    except SiteError as error:
        lines.append(checkout.relative(str(error), project))
        problems += warned.records(error.problems, error.origin, project)
    try:
        rules_file.read(project, name)
    except SiteError as error:
        lines.append(checkout.relative(str(error), project))
        problems += warned.records(error.problems, error.origin, project)
    record = {"valid": not problems, "file": file.name, "problems": problems, "warnings": warnings}
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
