"""Reads a site: from its file without the engine, or from the engine's configuration. Both give the same SiteConfig."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import pulumi
import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from stacks import versions
from stacks.capacity import DoesNotFitError
from stacks.cluster_plan import problems_of
from stacks.site import SiteConfig, unknown_references
from stacks.sizing import plan_model

PROJECT = "inference-platform"
KEY = f"{PROJECT}:site"


class SiteError(pulumi.RunError):
    """Everything that is wrong with a site, one line each: file:key, what, got, allowed, fix.

    A RunError, so that the engine prints it without a traceback.
    """


def load_site(values: Mapping[str, Any], origin: str) -> SiteConfig:
    """The site that `values` describe; `origin` is the file to name in errors. Raises SiteError with every problem."""
    try:
        site = SiteConfig.model_validate(values)
    except ValidationError as error:
        details = error.errors()
        lines = [line for detail in details for line in _describe(detail, origin)]
        if all(detail["loc"] for detail in details):
            # Some key was wrong, so nobody has looked yet at what the keys refer to.
            lines += [f"{origin}:{line}" for line in _unknown_references(values)]
        raise _site_error(lines, origin) from None
    misfits = [f"{origin}:models.{line}" for line in _misfits(site)]
    if site.cluster.machines is not None:
        found = problems_of(site.name, site.cluster.machines, versions.load())
        misfits += [f"{origin}:cluster.machines: {line}" for line in found]
    if misfits:
        raise _site_error(misfits, origin)
    return site


def site_of_stack(stack: str) -> SiteConfig:
    """The site of the running program, out of the engine's configuration. Raises SiteError."""
    origin = f"Pulumi.{stack}.yaml"
    values = pulumi.Config(PROJECT).get_object("site")
    if not isinstance(values, dict):
        raise SiteError(f"{origin}: config.{KEY} is missing\n  fix: describe the site there; see Pulumi.prod.yaml")
    return load_site(values, origin)


def load_file(path: Path) -> SiteConfig:
    """The site of one stack file, without the engine. Raises SiteError."""
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SiteError(f"{path}: no such file\n  fix: name a stack file, Pulumi.<site>.yaml") from None
    except yaml.YAMLError as error:
        raise SiteError(f"{path}: not YAML: {error}") from None
    values = ((document or {}).get("config") or {}).get(KEY)
    if not isinstance(values, dict):
        raise SiteError(f"{path}: config.{KEY} is missing\n  fix: describe the site there; see Pulumi.prod.yaml")
    return load_site(values, str(path))


def _site_error(lines: list[str], origin: str) -> SiteError:
    count = "1 error" if len(lines) == 1 else f"{len(lines)} errors"
    shown = [line.replace("\n", "\n  ") for line in lines]
    return SiteError(f"{origin}: {count} in the site\n" + "\n".join(f"  {line}" for line in shown))


def _unknown_references(values: Mapping[str, Any]) -> list[str]:
    """The same check as a valid site's, on those parts of a broken one that have the right form."""

    def parts(section: str, key: str, kind: type[Any]) -> dict[str, Any]:
        entries = values.get(section)
        named = entries.items() if isinstance(entries, Mapping) else ()
        return {
            str(name): entry[key]
            for name, entry in named
            if isinstance(entry, Mapping) and isinstance(entry.get(key), kind)
        }

    models = values.get("models")
    names = [str(name) for name in models] if isinstance(models, Mapping) else []
    return unknown_references(names, parts("models", "catalogue", str), parts("tenants", "models", list))


def _misfits(site: SiteConfig) -> list[str]:
    """Models whose replicas cannot work on the GPUs that they are given."""
    lines = []
    for name, spec in sorted(site.models.items()):
        try:
            plan_model(site, spec)
        except DoesNotFitError as error:
            lines.append(f"{name}.server.gpus: {error}")
    return lines


def _describe(detail: ErrorDetails, origin: str) -> list[str]:
    # pydantic's way to say that a mapping's key, not its value, is wrong.
    path = [str(part) for part in detail["loc"] if part != "[key]"]
    where = f"{origin}:{'.'.join(path)}" if path else origin
    got = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(path[-1], _allowed(path[:-1]), n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"allowed: {', '.join(_allowed(path[:-1]))}"
            return [f"{where}: unknown key; {hint}"]
        case "missing":
            return [f"{where}: missing; fix: add it"]
        case "value_error":
            cause = str(detail.get("ctx", {}).get("error", detail["msg"]))
            return [f"{where}: {line}" for line in cause.splitlines()]
        case _:
            return [f"{where}: {detail['msg']}; got {got!r}"]


def _allowed(path: list[str]) -> list[str]:
    """Keys that the section at `path` may hold."""
    kind: Any = SiteConfig
    for part in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(part)
            kind = _section(field.annotation) if field else None
        else:  # a mapping by name, or a list: its values' type
            kind = _section(next((each for each in reversed(get_args(kind)) if each is not Ellipsis), None))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return sorted(kind.model_fields)
    return []


def _section(annotation: Any) -> Any:
    """The kind of a key that may also be left out."""
    if get_origin(annotation) in (Union, UnionType):
        return next((each for each in get_args(annotation) if each is not NoneType), None)
    return annotation
