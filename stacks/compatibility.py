"""Executes `compatibility.yaml`: which versions and settings are incompatible, each with its source.

A row speaks where all of its `when` hold. `illegal` does not work at all, `known-bad` works and hurts, `needs` fails
unless its `needs` hold too. Conditions are about facts (see `facts`):

    ">=1.13 <1.14"     a version in this range; 1.13 means 1.13.0
    "==1.13.8"         just this one; "=={nvidia_driver}" compares with another fact
    "is longhorn"      just this text
    "has --seed"       a list that holds this entry

A fact that a site does not decide, such as the chart of a controller that others install, is not there, and a row that
asks for it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from components.base import Spec
from stacks import catalogue, versions
from stacks.loading.problems import Problem, file_error
from stacks.records import read_facts
from stacks.site import SiteConfig
from stacks.versions import Versions

FILE = Path(__file__).parent / "compatibility.yaml"

Fact = str | frozenset[str]
_COMPARISON = re.compile(r"(==|!=|>=|<=|>|<)(\{[a-z_]+\}|v?[0-9]+(?:\.[0-9]+){0,2})")


class Row(Spec):
    """One line of the table."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    verdict: Literal["illegal", "known-bad", "needs"]
    when: dict[str, str] = Field(min_length=1)
    needs: dict[str, str] = Field(default_factory=dict)
    text: str = Field(min_length=20)
    fix: str = Field(min_length=5)
    source: str = Field(min_length=5)

    @model_validator(mode="after")
    def _needs_are_named(self) -> Row:
        if (self.verdict == "needs") != bool(self.needs):
            raise ValueError(f"{self.id}: `needs` belongs to the verdict needs, and to no other")
        for fact, condition in (*self.when.items(), *self.needs.items()):
            if not _readable(condition):
                raise ValueError(f"{self.id}: {fact}: {condition!r} is no condition")
        return self


# Fact -> the key that decides it, as `stacks.loading.origins` names keys; those that a model decides are not here.
KEYS: Mapping[str, str] = {
    "talos": "versions.talos",
    "kubernetes": "versions.kubernetes",
    "nvidia_production_driver": "versions.nvidia.production.driver",
    "nvidia_production_fabric_manager": "versions.nvidia.production.fabric_manager",
    "nvidia_lts_driver": "versions.nvidia.lts.driver",
    "nvidia_lts_fabric_manager": "versions.nvidia.lts.fabric_manager",
    "picker_image": "versions.images.endpoint_picker",
    "picker": "versions.images.endpoint_picker",
    "vllm": "versions.images.vllm",
    "envoy_gateway": "versions.charts.envoy_gateway.version",
    "ai_gateway": "versions.charts.ai_gateway.version",
    "envoy_gateway_crds": "versions.crd_versions.envoy-gateway.json",
    "ai_gateway_crds": "versions.crd_versions.ai-gateway.json",
    "gateway_api_crds": "versions.crd_versions.gateway-api.json",
    "inference_extension_crds": "versions.crd_versions.inference-extension.json",
    "storage_class": "storage.storage_class",
}


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """A row that speaks, and what it found: fact -> (value, key that decides it)."""

    row: Row
    found: Mapping[str, tuple[str, str]]


@cache
def table() -> tuple[Row, ...]:
    """Every row of the file. Raises SiteError for a file that is wrong."""
    rows = read_facts(FILE, tuple[Row, ...])
    twice = sorted({row.id for row in rows if [other.id for other in rows].count(row.id) > 1})
    if twice:
        problem = Problem(path=(), what=f"written twice: {', '.join(twice)}", fix="give each row an id of its own")
        raise file_error(FILE.name, [problem])
    return rows


def facts(pins: Versions, site: SiteConfig) -> dict[str, Fact]:
    """What rows may ask for: versions as `1.2.3` without a v, strings, and lists of strings."""
    picker_image, picker = versions.parts(pins.images.endpoint_picker)
    found: dict[str, Fact] = {
        "talos": pins.talos,
        "kubernetes": pins.kubernetes,
        "nvidia_production_driver": pins.nvidia.production.driver,
        "nvidia_production_fabric_manager": pins.nvidia.production.fabric_manager,
        "nvidia_lts_driver": pins.nvidia.lts.driver,
        "nvidia_lts_fabric_manager": pins.nvidia.lts.fabric_manager,
        "picker_image": picker_image,
        "picker": picker,
        "storage_class": site.storage.storage_class,
        "models": frozenset(model.catalogue for model in site.models.values()),
    }
    engines = {model.server.engine for model in site.models.values()}
    if "vllm" in engines:
        found["vllm"] = versions.parts(pins.images.vllm)[1]
        found["vllm_flags"] = frozenset(_vllm_flags(site))
    if site.gateway.controllers == "chart":
        found["envoy_gateway"] = pins.charts.envoy_gateway.version
        found["ai_gateway"] = pins.charts.ai_gateway.version
    if site.crds.owner == "program":
        found |= {
            f"{file.removesuffix('.json').replace('-', '_')}_crds": release
            for file, release in pins.crd_versions.items()
        }
    return {name: value.removeprefix("v") if isinstance(value, str) else value for name, value in found.items()}


def conflicts(pins: Versions, site: SiteConfig) -> list[Conflict]:
    """Rows that speak about this set of versions and this site, in the order of the file."""
    known = facts(pins, site)
    found = []
    for row, asked in speaking(known):
        named = {}
        for fact in asked:
            value = known[fact]
            if isinstance(value, str):
                named[fact] = (value, KEYS[fact])
            else:
                entry = row.when[fact].removeprefix("has ")
                named[fact] = (entry, _key_of(site, fact, entry))
        found.append(Conflict(row=row, found=named))
    return found


def speaking(known: Mapping[str, Fact]) -> Iterator[tuple[Row, list[str]]]:
    """Rows that speak about these facts, each with the facts that it looked at."""
    for row in table():
        if not all(_holds(known, fact, condition) for fact, condition in row.when.items()):
            continue
        asked = [fact for fact in row.needs if fact in known]
        if not row.needs or not all(_holds(known, fact, row.needs[fact]) for fact in asked):
            yield row, list(dict.fromkeys((*row.when, *asked)))


def _holds(known: Mapping[str, Fact], fact: str, condition: str) -> bool:
    value = known.get(fact)
    if value is None:
        return False
    word, _, rest = condition.partition(" ")
    if word == "has":
        return rest in value
    if not isinstance(value, str):
        return False
    if word == "is":
        return value == rest
    return all(_compares(known, value, *match) for match in _COMPARISON.findall(condition))


def _compares(known: Mapping[str, Fact], value: str, operator: str, bound: str) -> bool:
    other = known.get(bound[1:-1]) if bound.startswith("{") else bound
    if not isinstance(other, str):
        return True
    left, right = _numbers(value), _numbers(other)
    match operator:
        case "==":
            return left == right
        case "!=":
            return left != right
        case ">=":
            return left >= right
        case "<=":
            return left <= right
        case ">":
            return left > right
    return left < right


def _numbers(version: str) -> tuple[int, ...]:
    """1.13 -> (1, 13, 0). What follows the third number, such as a release candidate's name, is not looked at."""
    found = [int(part) for part in re.findall(r"\d+", version)[:3]]
    return tuple(found + [0] * (3 - len(found)))


def _readable(condition: str) -> bool:
    word, _, rest = condition.partition(" ")
    if word in ("has", "is"):
        return bool(rest.strip())
    return " ".join("".join(match) for match in _COMPARISON.findall(condition)) == condition


def _key_of(site: SiteConfig, fact: str, entry: str) -> str:
    """Key of the first model that brings this entry into the fact."""
    for name, model in sorted(site.models.items()):
        if fact == "models" and model.catalogue == entry:
            return f"models.{name}.catalogue"
        if fact == "vllm_flags" and entry in _names(model.server.extra_args):
            return f"models.{name}.server.extra_args"
        if fact == "vllm_flags" and entry in _names(catalogue.load(model.catalogue).engine_flags):
            return f"catalogue.{model.catalogue}.engine_flags"
    return "models"


@cache
def named_flags() -> frozenset[str]:
    """Flags of vLLM that rows speak about."""
    conditions = [row.when["vllm_flags"] for row in table() if "vllm_flags" in row.when]
    return frozenset(condition.removeprefix("has ") for condition in conditions)


def _vllm_flags(site: SiteConfig) -> Iterator[str]:
    """Names of the flags that catalogue and site give to vLLM."""
    served = [model for model in site.models.values() if model.server.engine == "vllm"]
    for entry in {model.catalogue for model in served}:
        yield from _names(catalogue.load(entry).engine_flags)
    for model in served:
        yield from _names(model.server.extra_args)


def _names(flags: Iterable[str]) -> list[str]:
    return [flag.partition("=")[0] for flag in flags]
