"""The schema that editors check a site with takes every valid site and sees the plain mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from floor.reading.document import read
from stacks.site import reference
from stacks.site.loader import KEY
from stacks.site.reading.validation import plain

ROOT = Path(__file__).parents[3]
SITES = ROOT / "tests" / "fixtures" / "sites"
VALID = [*sorted((SITES / "valid").glob("*.yaml")), *sorted(ROOT.glob("Pulumi.*.yaml"))]
SCHEMA = json.loads(reference.SCHEMA.read_text())
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
# Keywords of JSON schema that `mistakes` understands; others only describe.
CHECKED = {
    "$ref", "anyOf", "type", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "required", "properties", "additionalProperties", "propertyNames", "minProperties", "maxProperties",
    "items", "minItems", "maxItems",
}  # fmt: skip
SPOKEN = {"title", "description", "default", "format", "$schema", "$defs"}


def mistakes(value: Any, node: dict[str, Any], path: str = "") -> Iterator[str]:  # noqa: C901 - a branch for each word
    assert set(node) <= CHECKED | SPOKEN, set(node) - CHECKED - SPOKEN
    if "$ref" in node:
        yield from mistakes(value, SCHEMA["$defs"][node["$ref"].rpartition("/")[2]], path)
    if "anyOf" in node and not any(not list(mistakes(value, choice, path)) for choice in node["anyOf"]):
        yield path
    kind = node.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield path
        return
    if value not in node.get("enum", [value]) or value != node.get("const", value):
        yield path
    if isinstance(value, str):
        if not re.search(node.get("pattern", ""), value) or len(value) < node.get("minLength", 0):
            yield path
    elif isinstance(value, int | float):
        low, high = node.get("minimum", value), node.get("maximum", value)
        below, above = node.get("exclusiveMinimum", value - 1), node.get("exclusiveMaximum", value + 1)
        if not low <= value <= high or not below < value < above:
            yield path
    elif isinstance(value, list):
        if not node.get("minItems", 0) <= len(value) <= node.get("maxItems", len(value)):
            yield path
        for index, item in enumerate(value):
            yield from mistakes(item, node.get("items", {}), f"{path}.{index}")
    elif isinstance(value, dict):
        if set(node.get("required", [])) - set(value) or not (
            node.get("minProperties", 0) <= len(value) <= node.get("maxProperties", len(value))
        ):
            yield path
        for key, inner in value.items():
            below = node.get("properties", {}).get(key, node.get("additionalProperties", {}))
            if below is False:
                yield f"{path}.{key}"
            else:
                yield from mistakes(key, node.get("propertyNames", {}), f"{path}.{key}")
                yield from mistakes(inner, below, f"{path}.{key}")


def seen(path: Path) -> list[str]:
    return list(mistakes(plain(read(path.read_text()).values), SCHEMA))


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_the_schema_takes_every_valid_site(path: Path) -> None:
    assert seen(path) == []


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("unknown-key-near", "gateway.replica"),
        ("catalogue-unknown", "models.qwen.catalogue"),
        ("gpu-unknown", "cluster.gpu"),
        ("choice-far", "models.qwen.server.engine"),
        ("range-below", "models.qwen.server.replicas"),
        ("form-of-a-name", "name"),
        ("form-of-a-tenants-name", "tenants.Search Team"),
        ("list-is-a-word", "tenants.search.models"),
        ("price-currency", "prices"),
        ("override-with-a-short-reason", "models.qwen.overrides.max_num_seqs"),
    ],
)
def test_the_schema_sees_what_an_editor_can_see(name: str, where: str) -> None:
    places = seen(SITES / "invalid" / f"{name}.yaml")
    assert f".config.{KEY}.{where}" in places
