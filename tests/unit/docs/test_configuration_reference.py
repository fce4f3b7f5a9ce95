"""The reference says of every key what it means, and is as the models are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.facts.catalogue import CatalogueModel
from stacks.site import reference
from stacks.site.loader import KEY
from stacks.site.model import SiteConfig

ROOT = Path(__file__).parents[3]
KEYS = {key.path: key for key in reference.keys(SiteConfig)}


def test_reference_and_schema_are_not_stale() -> None:
    assert reference.REFERENCE.read_text() == reference.render(), "run `make docs`"
    assert reference.SCHEMA.read_text() == reference.schema_text(), "run `make docs`"


def test_every_key_says_what_it_means() -> None:
    for model in (SiteConfig, CatalogueModel):
        assert [key.path for key in reference.keys(model) if not key.meaning.endswith(".")] == []


def test_values_are_written_as_a_site_writes_them() -> None:
    """Defaults were Python's: `False`, `1.25e+08`, `100000000000.0`, and nothing between two backticks."""
    assert KEYS["cluster.machines.nodes.<name>.dead"].default == "`false`"
    assert KEYS["storage.weights.download_bytes_per_s"].default == "`1.25e+8`"
    assert KEYS["storage.read_bytes_per_s"].allowed == "at least 1.0e+6, at most 1.0e+11"
    own = list(reference.keys(CatalogueModel))
    assert next(key for key in own if key.path == "pattern").default == "none"
    shown = [f"{key.default} {key.allowed}" for key in [*KEYS.values(), *own]]
    assert [text for text in shown if re.search(r"True|False|``|\d{4,}\.0\b|e\+0", text)] == []


def test_kinds_of_a_section_are_reported_one_after_the_other() -> None:
    """`kind` was in one table six times, each with another value, and nothing showed that they are choices."""
    text = reference.REFERENCE.read_text()
    assert (
        "| `mixers.<name>.kind` | text | **required** | `full` | Selects these keys: Attention over the whole" in text
    )
    kinds = re.findall(r"^\| `(?:mixers|feed_forward)\.<name>\.kind` \|.*\| (.+) \|$", text, re.MULTILINE)
    assert len(kinds) == 8
    assert all(meaning.startswith("Selects these keys: ") for meaning in kinds)
    assert "text by name by name" not in text
    assert "anything by name by name" not in text


def test_keys_below_chosen_names_are_found() -> None:
    assert {"models.<name>.server.replicas", "tenants.<name>.keys.<name>.rotation", "gateway.port"} <= set(KEYS)
    assert KEYS["gateway.port"].allowed == "at least 1, at most 65535"
    assert KEYS["gateway.controllers"].allowed == "`chart`, `external`"
    assert KEYS["models.<name>.catalogue"].default == ""
    assert "glm-5.1-fp8" in KEYS["models.<name>.catalogue"].allowed


@pytest.mark.parametrize("file", sorted(ROOT.glob("Pulumi.*.yaml")), ids=lambda path: path.name)
def test_the_schema_knows_every_key_of_the_committed_sites(file: Path) -> None:
    document = yaml.safe_load(file.read_text())
    schema = json.loads(reference.SCHEMA.read_text())
    unknown: list[str] = []

    def visit(value: Any, node: dict[str, Any], path: str) -> None:
        options = [node, *node.get("anyOf", [])]
        options += [schema["$defs"][o["$ref"].rpartition("/")[2]] for o in options if "$ref" in o]
        if not isinstance(value, dict):
            return
        for name, inner in value.items():
            known = [o["properties"][name] for o in options if name in o.get("properties", {})]
            known += [o["additionalProperties"] for o in options if isinstance(o.get("additionalProperties"), dict)]
            if known:
                visit(inner, known[0], f"{path}.{name}")
            elif path:
                unknown.append(f"{path}.{name}")

    visit(document["config"], schema["properties"]["config"], "config")
    assert unknown == []


def test_the_annotated_sites_defaults_are_the_real_ones() -> None:
    text = (ROOT / "Pulumi.prod.yaml").read_text()
    reported = re.findall(r"# [^\n]*Default: ([^\n]+)\n\s+(\w+):", text)
    assert len(reported) > 15
    for default, name in reported:
        real = {key.default.strip("`") for path, key in KEYS.items() if path.rpartition(".")[2] == name}
        assert default in real, name


def test_the_annotated_site_points_to_reference_and_schema() -> None:
    text = (ROOT / "Pulumi.prod.yaml").read_text()
    assert "docs/configuration.md" in text
    assert "$schema=docs/site.schema.json" in text
    assert set(yaml.safe_load(text)["config"]) == {KEY}
