"""Which package may import which: the layout's one-way street."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

pytestmark = pytest.mark.row("C.03")

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "floor",
    "stacks",
    "components",
    "talos",
    "manifests",
    "bundle",
    "definitions",
    "lab",
    "policy",
    "sitectl",
    "ci",
    "services",
)
# Folders inside of these are rooms of their own, and so are single files that have a row.
WITH_ROOMS = ("floor", "stacks", "components", "talos", "sitectl", "lab")
MAY_IMPORT = {
    "__main__": {"stacks.program"},
    "floor": set(),
    "floor.reading": {"floor"},
    "manifests": set(),
    # Runs in pods, under a Python that has none of the other rooms.
    "services": set(),
    "talos": {"floor", "talos.documents", "talos.secrets"},
    "talos.documents": {"floor"},
    "talos.secrets": {"floor", "talos.documents"},
    "talos.factory": {"floor"},
    "talos.api": {"floor"},
    "talos.cli": {"floor", "talos", "talos.api", "talos.documents", "talos.factory", "talos.secrets"},
    "talos.__main__": {"talos.cli"},
    "policy": {"floor", "floor.reading", "services"},
    "definitions": {"floor"},
    "components": {"floor"},
    "components.specs": {"floor"},
    "components.addons": {"floor", "components", "components.specs", "definitions", "services"},
    "components.machines": {"floor", "components", "talos.secrets"},
    "components.tenants": {"floor", "components", "components.specs", "components.addons", "components.gateway"}
    | {"services"},
    "components.gateway": {"floor", "components", "components.specs", "components.addons", "manifests", "services"},
    "components.models": {"floor", "components", "components.specs", "components.gateway", "manifests", "talos"}
    | {"services"},
    "components.monitoring": {"floor", "components", "components.specs", "components.gateway"}
    | {"components.models", "manifests", "services"},
    "stacks": set(),
    "stacks.facts": {"floor", "floor.reading"},
    "stacks.proof": {"floor", "stacks.facts"},
    "stacks.importing": {"floor", "floor.reading", "stacks.facts", "stacks.proof"},
    "stacks.site": {"floor", "floor.reading", "services", "stacks.facts", "talos", "talos.documents"}
    | {"components.specs", "components.addons"},
    "stacks.plan": {"floor", "components", "stacks.facts", "stacks.proof", "stacks.site"}
    | {"talos", "talos.documents", "talos.factory", "talos.secrets"}
    | {"components.addons", "components.specs", "components.models", "services"},
    "stacks.whatif": {"floor", "stacks.plan", "stacks.proof"},
    "stacks.program": {"floor", "floor.reading", "policy", "stacks.facts", "stacks.site", "stacks.plan"}
    | {"components", "components.addons", "components.gateway", "components.machines"}
    | {"components.models", "components.monitoring", "components.tenants"},
    "bundle": {"floor", "components.addons", "services", "stacks.facts", "talos", "talos.documents", "talos.factory"},
    # The emulated site knows the platform by its stack file and outputs alone; only emulated machines speak its wire.
    # Of `floor` it takes the form of command lines, and the names of namespaces.
    "lab": set(),
    "lab.bootstrap": set(),
    "lab.errors": set(),
    "lab.kubeconfigs": set(),
    "lab.paths": {"lab.errors"},
    "lab.progress": set(),
    "lab.hub": {"lab.errors"},
    # One loop of list and watch for the controllers, the pod runner and the Kubernetes stand-in.
    "lab.watching": set(),
    "lab.plugins": {"lab.kubeconfigs", "lab.watching"},
    "lab.install": {"floor", "lab.errors", "lab.paths", "lab.progress", "bundle", "stacks.facts"},
    "lab.cluster": {"floor", "lab.errors", "lab.kubeconfigs", "lab.paths", "lab.watching"},
    "lab.runner": {"floor", "lab.errors", "lab.kubeconfigs", "lab.paths", "lab.cluster", "lab.watching"}
    | {"lab.vllm_cpu"},
    # Images of what the runner runs, so that it has them to pull.
    "lab.registry": {"bundle", "floor", "lab.errors", "lab.paths", "lab.install", "lab.runner"},
    "lab.machines": {"floor", "lab.cluster", "lab.errors", "lab.paths", "talos.api", "talos.factory", "talos.secrets"},
    # The only one that knows all that runs; the rooms below know their own part.
    "lab.site": {"lab.errors", "lab.paths", "lab.progress", "lab.cluster", "lab.machines", "lab.registry"}
    | {"lab.vllm_cpu"},
    "lab.session": {"lab.errors", "lab.paths", "lab.install"},
    "lab.vllm_cpu": {"lab.errors", "lab.paths", "lab.progress"},
    "lab.deploy": {"lab.errors", "lab.paths", "lab.session"},
    "lab.doctor": {"lab.errors", "lab.paths", "lab.install", "lab.cluster", "lab.site", "lab.session"},
    # It names its commands as text, and imports the one that is called.
    "lab.cli": {"floor", "lab.errors", "lab.paths"},
    "lab.__main__": {"lab.cli"},
    # Works on a site from outside: what it knows of the program comes from a run of the program. Of each other, what
    # asks a running site, what runs the program offline and what prints know nothing; all know changes.
    "sitectl.shell": {"floor"},
    "sitectl.change": {
        "components.addons",
        "components.gateway",
        "components.specs",
        "definitions",
        "floor",
        "floor.reading",
        "policy",
    }
    | {"sitectl.shell", "stacks.facts", "stacks.plan", "stacks.proof", "stacks.site", "talos"},
    "sitectl.live": {
        "components.addons",
        "components.monitoring",
        "definitions",
        "floor",
        "services",
        "sitectl.change",
        "sitectl.shell",
    }
    | {"stacks.facts", "stacks.plan", "stacks.site", "talos", "talos.api", "talos.factory"},
    "sitectl.offline": {"bundle", "components.addons", "floor", "floor.reading", "policy", "services"}
    | {"sitectl.change", "sitectl.shell", "stacks.facts", "stacks.plan", "stacks.site"},
    "sitectl.output": {"floor", "floor.reading", "sitectl.change", "sitectl.shell"}
    | {"stacks.facts", "stacks.plan", "stacks.proof", "stacks.site", "stacks.whatif"},
    "sitectl.forge": {"sitectl.shell"},
    "sitectl.commands": {"bundle", "components.addons", "components.specs", "floor", "policy", "services"}
    | {"sitectl.change", "sitectl.forge", "sitectl.live", "sitectl.offline", "sitectl.output", "sitectl.shell"}
    | {"stacks.facts", "stacks.importing", "stacks.plan", "stacks.proof", "stacks.site", "stacks.whatif", "talos.api"},
    "sitectl.__main__": {"sitectl.shell"},
    "sitectl": set(),
    "ci": {"floor", "stacks.plan"}
    | {"sitectl.change", "sitectl.live", "sitectl.offline", "sitectl.output", "sitectl.shell"},
}
# Inside a room of components, each file is a part by itself, but for names and command lines, which are plain text, and
# for the form in which an addon describes itself.
TEXTS = {
    "addon",
    "charts",
    "cost_queries",
    "envoy_names",
    "envoy_patches",
    "gpu_faults",
    "gpu_resources",
    "group_queries",
    "machine_commands",
    "queries",
    "reconciliation",
    "trusted_roots",
}
COMPOSITES = {"registry", "model", "cluster", "monitoring"}
PARTS = {
    "cert_manager": {"webhooks"},
    "external_secrets": {"webhooks"},
    "leader_worker_set": {"webhooks"},
    "gpu_stack": {"gpu_counters"},
    "load_balancer_addresses": {"bgp"},
    "host_queries": {"host_scrapes"},
    "host_scrapes": {"permissions", "prometheus"},
    "limits": {"limit_scripts"},
    "door_scripts": {"gateway_errors", "request_log"},
    "front_door": {"connections", "door_scripts", "pickers", "request_log"},
    "pickers": {"connections"},
    "portal": {"callers", "directory", "ledger", "pods"},
    "gatekeeper": {"callers", "directory", "ledger", "pods"},
    "database": {"pods"},
    "directory": {"callers", "ledger", "pods"},
    "ledger": {"callers", "pods"},
    "gateway": {"certificate", "gateway_errors", "gateway_overload", "request_log", "traces", "traffic_policies"}
    | {"usage_log"},
    "usage_log": {"envoy_names", "request_log"},
    "traffic_policies": {"traces"},
    "tiers": {"limit_scripts"},
    "traces": {"request_log"},
    "model_route": {"ranking"},
    "model_server": {"weights", "node_weights", "engines", "liveness", "replica_groups", "scaling"},
    "split_pools": {"engines", "inference_pool", "model_server", "weights"},
    "replica_groups": {"liveness"},
    "liveness": {"engines", "own_program", "weights"},
    "weights": {"own_program"},
    "pod_programs": {"own_program"},
    "node_weights": {"weights"},
    "engines": {"weights"},
    "operator": {"permissions", "pods"},
    "kube_state_metrics": {"permissions", "pods"},
    "alertmanager": {"operator", "pods"},
    "prometheus": {"alertmanager", "operator", "permissions", "pods"},
    "scraping": {"alertmanager", "kube_state_metrics", "operator", "pods", "prometheus"},
    "alert_page": {"alerts", "rules"},
    "recording": set(),
    "watcher": {"load_test", "permissions", "pods", "prometheus"},
    "load_test": {"pods"},
    "rules": {"alerts", "recording"},
}
NEVER = {"talos": {"pulumi"}, "manifests": {"pulumi"}}


def modules() -> Iterator[tuple[str, Path]]:
    yield "__main__", ROOT / "__main__.py"
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield package, path


@cache
def imported(path: Path) -> Set[str]:
    """Modules and packages that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if _is_module(name) else node.module for name in inner}
    return names


def _is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def room(module: str) -> str:
    """The package of a module, with its folder or file where the package has rooms."""
    package, _, rest = module.partition(".")
    folder = f"{package}.{rest.partition('.')[0]}"
    return folder if package in WITH_ROOMS and folder in MAY_IMPORT else package


def test_nothing_imports_upward() -> None:
    above: dict[str, set[str]] = {}
    for package, path in modules():
        own = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
        names = imported(path)
        rooms = {room(name) for name in names if name.partition(".")[0] in PACKAGES} - {own}
        never = {name.partition(".")[0] for name in names} & NEVER.get(package, set())
        if refused := rooms - MAY_IMPORT[own] | never:
            above[str(path.relative_to(ROOT))] = refused
    assert above == {}


def test_every_folder_is_a_room() -> None:
    """A new folder says what it may import before anything is in it."""
    for package in WITH_ROOMS:
        folders = {f"{package}.{path.parent.name}" for path in (ROOT / package).glob("*/__init__.py")}
        files = {f"{package}.{path.stem}" for path in (ROOT / package).glob("*.py")}
        assert folders == {name for name in MAY_IMPORT if name.startswith(f"{package}.")} - files


def test_no_rooms_import_each_other() -> None:
    """Neither directly nor by way of others; the error names the circle."""
    TopologicalSorter(MAY_IMPORT).prepare()


def test_every_edge_is_used() -> None:
    """An edge that no file needs would let the next file in unseen."""
    used: dict[str, set[str]] = {name: set() for name in MAY_IMPORT}
    for _, path in modules():
        own = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
        used[own] |= {room(name) for name in imported(path) if name.partition(".")[0] in PACKAGES} - {own}
    assert used == MAY_IMPORT


def test_only_emulated_machines_know_talos() -> None:
    for package, path in modules():
        own = path.relative_to(ROOT)
        if package == "lab" and "machines" not in own.parts:
            assert "talos" not in {name.partition(".")[0] for name in imported(path)}, path


def test_no_product_file_names_the_labs_folder() -> None:
    """No default, message or command of a production site leads there; the lab's own site names it as any site does."""
    products = [path for package, path in modules() if package != "lab"]
    files = [*products, ROOT / "Pulumi.yaml", ROOT / "Pulumi.prod.yaml", *(ROOT / "stacks").rglob("*.yaml")]
    assert [
        str(path) for path in files if re.search(r"(?<![\w.])\.lab\b|python -m lab install", path.read_text())
    ] == []


def test_components_do_not_import_each_other() -> None:
    for folder in ("addons", "gateway", "machines", "models", "monitoring", "tenants"):
        for path in sorted((ROOT / "components" / folder).glob("*.py")):
            own = f"components.{folder}."
            siblings = {name.removeprefix(own).split(".")[0] for name in imported(path) if name.startswith(own)}
            if path.stem not in COMPOSITES:
                assert siblings <= TEXTS | PARTS.get(path.stem, set()), path.name


def test_no_file_is_too_long_and_no_drawer_is_nameless() -> None:
    tests = ((ROOT / folder).rglob("*.py") for folder in ("tests", "benchmarks"))
    for path in (*(path for _, path in modules()), *chain.from_iterable(tests)):
        assert len(path.read_text().splitlines()) <= 400, path
        assert path.stem not in {"util", "utils", "helpers", "common", "misc", "lib"}, path
