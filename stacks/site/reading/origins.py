"""Where each value of a site comes from: its own file, the catalogue, the versions, or a default in the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Literal

from pydantic import BaseModel

from floor.problems import Path
from floor.reading.document import YamlDocument
from stacks.facts import catalogue, versions
from stacks.facts.records import read_document, shown_name
from stacks.site.model import SiteConfig

Layer = Literal["default", "catalogue", "versions", "site"]

ROOT = FilePath(__file__).parents[3]

# A key that a site may leave to its model's entry in the catalogue -> the key there.
FROM_CATALOGUE: Mapping[Path, str] = {}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Layer, file and line of one value."""

    layer: Layer
    file: str
    line: int | None = None

    def __str__(self) -> str:
        if self.layer == "default":
            return f"default of {self.file}"
        return f"{self.file}:{self.line}" if self.line else self.file


def origins(site: SiteConfig, written: YamlDocument, file: str) -> dict[str, Origin]:
    """Origin of each leaf by its dotted path.

    In addition to the site's own keys there are `catalogue.<entry>.<key>` for every entry that the site orders, and
    `versions.<key>` for every pin.
    """
    by_key = dict(_leaves(site, (), written, file))
    for revision, model in site.revisions:
        entry = _file(catalogue.FOLDER / f"{model.catalogue}.yaml", "catalogue")
        for key, origin in entry.items():
            by_key[f"catalogue.{model.catalogue}.{key}"] = origin
        if revision.digest:
            continue
        for path, key in FROM_CATALOGUE.items():
            dotted = ".".join(("models", revision.model, *path))
            if by_key[dotted].layer == "default" and key in entry:
                by_key[dotted] = entry[key]
    for key, origin in _file(versions.FILE, "versions").items():
        by_key[f"versions.{key}"] = origin
    return by_key


@cache
def _file(path: FilePath, layer: Layer) -> Mapping[str, Origin]:
    shown, document = shown_name(path), read_document(path)
    return {
        ".".join(key): Origin(layer=layer, file=shown, line=line)
        for key, line in document.lines.items()
        if key and not isinstance(_at(document.values, key), dict | list)
    }


def _leaves(value: Any, path: Path, written: YamlDocument, file: str) -> Iterator[tuple[str, Origin]]:
    """Leaves of a section; a list is one leaf."""
    for name, inner, field in _below(value):
        here = (*path, name)
        if isinstance(inner, BaseModel) or (isinstance(inner, dict) and inner):
            yield from _leaves(inner, here, written, file)
            continue
        if _has(written.values, here):
            yield ".".join(here), Origin(layer="site", file=file, line=written.lines.get(here))
        else:
            yield ".".join(here), Origin(layer="default", file=_source(value, field))


def _below(value: Any) -> Iterator[tuple[str, Any, str]]:
    if isinstance(value, BaseModel):
        yield from ((name, getattr(value, name), name) for name in type(value).model_fields)
    else:
        yield from ((str(name), inner, "") for name, inner in value.items())


def _source(owner: Any, field: str) -> str:
    """File of the class that declares the field."""
    for kind in type(owner).__mro__:
        if field in vars(kind).get("__annotations__", {}):
            return f"{kind.__module__.replace('.', '/')}.py"
    return f"{type(owner).__module__.replace('.', '/')}.py"


def _at(values: Any, path: Path) -> Any:
    for key in path:
        values = values[int(key)] if isinstance(values, list) else values[key]
    return values


def _has(values: Any, path: Path) -> bool:
    for key in path:
        if not isinstance(values, Mapping) or key not in values:
            return False
        values = values[key]
    return True
