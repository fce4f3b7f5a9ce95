"""`validate`: is a site's file right, by itself."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sitectl import checkout
from sitectl.errors import Exit, SitectlError
from stacks import site_rules
from stacks.loader import trace_file
from stacks.loading.problems import SiteError

HELP = "check site files: every mistake at once, with line, what is allowed and the fix"
MORE = """\
Reads Pulumi.SITE.yaml, and rules.SITE.yaml beside it if there is one. Needs no engine, no cluster, no network.

  python -m sitectl validate             all sites
  python -m sitectl validate berlin      one of them

exit status 1: a site is wrong; the lines say where and how to mend it
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", nargs="*", metavar="SITE", help="names of sites (default: all)")


def run(context: Any, arguments: argparse.Namespace) -> int:
    files = checkout.site_files(context.project, arguments.site)
    if not files:
        raise SitectlError("there is no site yet", fix="python -m sitectl init NAME", status=Exit.REFUSED)
    lines: list[str] = []
    records: dict[str, Any] = {}
    for name, file in files.items():
        said, record = _check(context.project, name, file)
        records[name] = record
        lines += said
    wrong = [name for name, record in records.items() if not record["valid"]]
    count = f"{len(files)} site" + ("" if len(files) == 1 else "s")
    lines.append(f"{count}: all valid" if not wrong else f"{count}: {len(wrong)} not valid ({', '.join(wrong)})")
    if not wrong:
        lines.append(f"next: python -m sitectl rules {' '.join(arguments.site)}".rstrip())
    context.say("\n".join(lines), records)
    return int(Exit.REFUSED if wrong else Exit.OK)


def _check(project: Path, name: str, file: Path) -> tuple[list[str], dict[str, Any]]:
    lines: list[str] = []
    problems: list[dict[str, Any]] = []
    try:
        loaded = trace_file(file).site
        lines.append(f"{file.name}: valid; {_size(loaded)}")
    except SiteError as error:
        lines.append(checkout.relative(str(error), project))
        problems += _records(error)
    try:
        site_rules.read(project, name)
    except SiteError as error:
        lines.append(checkout.relative(str(error), project))
        problems += _records(error)
    return lines, {"valid": not problems, "file": file.name, "problems": problems}


def _records(error: SiteError) -> list[dict[str, Any]]:
    return [
        {"key": one.key, "line": one.line, "what": one.what, "got": one.got, "allowed": one.allowed, "fix": one.fix}
        for one in error.problems
    ]


def _size(site: Any) -> str:
    keys = sum(len(tenant.keys) for tenant in site.tenants.values())
    return f"{len(site.models)} models, {len(site.tenants)} tenants with {keys} keys"
