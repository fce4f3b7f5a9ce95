"""A site's values as YAML, each key below its meaning, with marks where a person must fill in a fact."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from stacks.site.model import SiteConfig
from stacks.site.reference import keys

_WIDTH = 116
# Sections whose keys are names that the site chooses.
_NAMED = ("models", "tenants", "cluster.machines.nodes", "cluster.machines.roles")
# One line an entry: a rack of machines reads as a table.
_AS_TABLE = ("cluster.machines.nodes",)


def lines(values: Mapping[str, Any], notes: Mapping[str, str], *, indent: int) -> Iterator[str]:
    """YAML of a site; `notes` are printed above the keys that they name, as `cluster.machines.endpoint`."""
    meanings = {key.path: key.meaning for key in keys(SiteConfig)}
    yield from _section(values, "", meanings, dict(notes), indent=indent, reported=set())


def _section(
    values: Mapping[str, Any],
    path: str,
    meanings: dict[str, str],
    notes: dict[str, str],
    *,
    indent: int,
    reported: set[str],
) -> Iterator[str]:
    """A section, each key under its meaning the first time that it comes."""
    pad = " " * indent
    for key, value in values.items():
        named = path in _NAMED or path.endswith((".keys", ".links", ".bonds"))
        here = f"{path}.<name>" if named else f"{path}.{key}" if path else key
        meaning = meanings.get(here, "")
        if meaning and here not in reported:
            reported.add(here)
            yield from _comment(meaning, pad)
        if note := notes.pop(here, ""):
            yield from _comment(note, pad)
        if isinstance(value, dict) and value and path not in _AS_TABLE:
            yield f"{pad}{key}:"
            yield from _section(value, here, meanings, notes, indent=indent + 2, reported=reported)
        else:
            shown = yaml.safe_dump(value, default_flow_style=True, width=200, sort_keys=False).strip()
            yield f"{pad}{key}: {shown.removesuffix('...').strip()}"


def _comment(text: str, pad: str) -> Iterator[str]:
    width = _WIDTH - len(pad)
    plain = text.replace("`", "")
    return (f"{pad}# {line}" for line in textwrap.wrap(plain, width, break_long_words=False, break_on_hyphens=False))
