"""Reads the site of a running program from the engine's configuration, as `stacks.site.loader` does from its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi

from floor.reading.document import YamlDocument, read_file
from stacks.plan.site_plan import SitePlan, plan_read
from stacks.site.loader import KEY, PROJECT, ReadSite, no_site, read_site
from stacks.site.reading import validation


def plan_stack(stack: str) -> SitePlan:
    """The plan of the running program's site. Raises SiteError with every problem."""
    return plan_read(read_stack(stack), Path.cwd())


def read_stack(stack: str) -> ReadSite:
    """The site of the running program. Lines are known if the stack file next to it is the one that was read."""
    file = f"Pulumi.{stack}.yaml"
    config = pulumi.Config(PROJECT)
    try:
        values = config.get_object("site")
    except pulumi.ConfigTypeError:
        # Plain text instead of a section is passed on as it is, not as JSON.
        values = config.get("site")
    if values is None:
        raise no_site(file, None, {})
    document = _lines_of(Path(file), values)
    return read_site(document, file, beside=Path(file) if document.lines else None)


def _lines_of(path: Path, values: Any) -> YamlDocument:
    """What the file sets if it holds just these values: another one may have been given to the engine."""
    try:
        document = read_file(path).section("config", KEY)
    except FileNotFoundError:
        return YamlDocument(values=values)
    same = validation.plain(document.values) == validation.plain(values)
    return replace(document, values=values) if same else YamlDocument(values=values)
