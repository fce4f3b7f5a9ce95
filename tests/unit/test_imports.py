"""Which package may import which: the layout's one-way street."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.row("C.03")

ROOT = Path(__file__).parents[2]
PACKAGES = ("stacks", "components", "talos", "manifests", "services", "lab", "policy", "sitectl", "ci")
MAY_IMPORT = {
    "__main__": {"stacks"},
    "stacks": {"components", "talos", "manifests"},
    "components": {"talos", "manifests"},
    "talos": set(),
    "manifests": set(),
    "services": set(),
    # The emulated site knows the platform by its stack file and outputs alone; only emulated machines speak its wire.
    "lab": {"talos"},
    "policy": {"components"},
    # Works on a site from outside: what it knows of the program comes from a run of the program.
    "sitectl": {"stacks", "components"},
    "ci": {"sitectl", "stacks"},
}
# Inside components: all import the floor, composites import all, the rest import none of the others.
FLOOR = {"base", "component", "specs", "objects", "namespace", "network_policies", "headers", "envoy_names"} | {
    "machine_commands",
    "metadata",
}
COMPOSITES = {"model", "cluster"}
PARTS = {
    "front_door": {"gateway_errors"},
    "gateway": {"gateway_errors", "gateway_overload"},
    "gateway_controllers": {"charts"},
    "model_server": {"weights", "engines"},
    "engines": {"weights"},
}
NEVER = {"talos": {"pulumi"}, "manifests": {"pulumi"}}


def modules() -> Iterator[tuple[str, Path]]:
    yield "__main__", ROOT / "__main__.py"
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield package, path


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize(("package", "path"), list(modules()), ids=lambda value: str(value).removeprefix(f"{ROOT}/"))
def test_nothing_imports_upward(package: str, path: Path) -> None:
    names = {name.partition(".")[0] for name in imported(path)}
    assert names & set(PACKAGES) - {package} <= MAY_IMPORT[package]
    assert not names & NEVER.get(package, set())


def test_only_emulated_machines_and_their_pod_network_know_talos() -> None:
    for package, path in modules():
        own = path.relative_to(ROOT)
        if package == "lab" and "machines" not in own.parts and own != Path("lab/install/cilium.py"):
            assert "talos" not in {name.partition(".")[0] for name in imported(path)}, path


def test_components_know_their_floor_alone() -> None:
    for path in sorted((ROOT / "components").glob("*.py")):
        if path.stem in COMPOSITES | {"__init__"}:
            continue
        siblings = {name.split(".")[1] for name in imported(path) if name.startswith("components.")}
        assert siblings <= FLOOR | PARTS.get(path.stem, set()), path.name


def test_no_file_is_too_long_and_no_drawer_is_nameless() -> None:
    for _, path in modules():
        assert len(path.read_text().splitlines()) <= 420, path
        assert path.stem not in {"util", "utils", "helpers", "common", "misc", "lib"}, path
