"""Reads the site of a running program from the engine's configuration, as `stacks.site.loader` does from its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi

from floor.reading.document import Document, read_file
from stacks.site.loader import KEY, PROJECT, LoadedSite, no_site, trace_document
from stacks.site.model import SiteConfig
from stacks.site.reading import validation


def site_of_stack(stack: str) -> SiteConfig:
    """The site of the running program. Raises SiteError."""
    return trace_stack(stack).site


def trace_stack(stack: str) -> LoadedSite:
    """`site_of_stack`, with origins. Lines are known if the stack file next to the program is the one that was read."""
    origin = f"Pulumi.{stack}.yaml"
    config = pulumi.Config(PROJECT)
    try:
        values = config.get_object("site")
    except pulumi.ConfigTypeError:
        # Plain text instead of a section is passed on as it is, not as JSON.
        values = config.get("site")
    if values is None:
        raise no_site(origin, None, {})
    found = _lines_of(Path(origin), values)
    return trace_document(found, origin, beside=Path(origin) if found.lines else None)


def _lines_of(path: Path, values: Any) -> Document:
    """What the file says if it says just these values: another one may have been given to the engine."""
    try:
        found = read_file(path).section("config", KEY)
    except FileNotFoundError:
        return Document(values=values)
    same = validation.plain(found.values) == validation.plain(values)
    return replace(found, values=values) if same else Document(values=values)
