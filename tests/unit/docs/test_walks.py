"""The walks of docs/architecture.md: each step is where the page says, and a changed value arrives at its object."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from components.models.model_server import deployment
from components.tenants.access import security_policy
from stacks.plan.cluster import ClusterPlan
from stacks.plan.site_plan import SitePlan, plan_file, plan_site
from talos.secrets import bundle as secrets
from tests.unit.talos.talos_examples import entropy
from tests.unit.test_imports import MAY_IMPORT

pytestmark = pytest.mark.row("C.03")

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "architecture.md"
PROD = plan_file(ROOT / "Pulumi.prod.yaml")
_STEP = re.compile(r"^\d+\. \[(?P<module>[\w/]+\.py)\]\(\.\./(?P=module)\) `(?P<name>[\w.]+)`", re.MULTILINE)


def walks() -> dict[str, list[tuple[str, str]]]:
    """Key of the site -> its steps as (module, name)."""
    parts = re.split(r"^### `(.+)`$", PAGE.read_text(), flags=re.MULTILINE)
    return {key: _STEP.findall(text.partition("\n## ")[0]) for key, text in zip(parts[1::2], parts[2::2], strict=True)}


def names(module: Path) -> set[str]:
    """Functions, classes, and `Class.field` of a module."""
    given: set[str] = set()
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            given.add(node.name)
        if not isinstance(node, ast.ClassDef):
            continue
        for inner in node.body:
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                given.add(f"{node.name}.{inner.target.id}")
            elif isinstance(inner, ast.FunctionDef):
                given.add(f"{node.name}.{inner.name}")
    return given


def test_the_readme_has_a_row_for_every_room() -> None:
    """As the import test knows them; rooms within these, and `components.specs`, are in the row of their package."""
    table = (ROOT / "README.md").read_text().partition("| room | what is in it |")[2].partition("\n\n")[0]
    first_column = " ".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))
    within = ("floor.", "lab.", "talos.", "sitectl.")
    rooms = {room for room in MAY_IMPORT if not room.startswith(within)} - {"__main__", "components.specs"}
    with_rooms = {room.partition(".")[0] for room in rooms if "." in room}
    names = {room.replace(".", "/") for room in rooms - with_rooms}
    assert [name for name in sorted(names) if f"`{name}`" not in first_column.replace("/`", "`")] == []


@pytest.mark.parametrize("key", walks())
def test_each_step_is_where_the_page_says(key: str) -> None:
    steps = walks()[key]
    assert len(steps) >= 3
    assert [(module, name) for module, name in steps if name not in names(ROOT / module)] == []


@pytest.mark.parametrize("key", walks())
def test_a_value_passes_through_each_room_once(key: str) -> None:
    rooms = ["/".join(module.split("/")[:2]) for module, _ in walks()[key]]
    entered = [room for place, room in enumerate(rooms) if place == 0 or rooms[place - 1] != room]
    # The plan hands an order to the proof and takes settings from it: one call, seen from both of its ends.
    entered = [room for room in entered if room != "stacks/proof"]
    entered = [room for place, room in enumerate(entered) if place == 0 or entered[place - 1] != room]
    assert len(entered) == len(set(entered))


def changed(path: str, value: Any) -> SitePlan:
    """The plan of the reference site with another value at a dotted path of names."""

    def put(node: Any, keys: list[str]) -> Any:
        if not keys:
            return value
        if isinstance(node, Mapping):
            return {**node, keys[0]: put(node[keys[0]], keys[1:])}
        return node.model_copy(update={keys[0]: put(getattr(node, keys[0]), keys[1:])})

    return plan_site(put(PROD.site, path.split(".")))


def replicas(plan: SitePlan) -> Any:
    model = plan.models["qwen3-32b"].stable
    return deployment("m", "n", model.spec.server, model.server, model.engine)["spec"]["replicas"]


def sequences(plan: SitePlan) -> Any:
    return next(arg for arg in plan.models["qwen3-32b"].stable.engine.args if arg.startswith("--max-num-seqs="))


def links(plan: SitePlan) -> Any:
    machines = plan.machines
    assert isinstance(machines, ClusterPlan)
    bundle = secrets.generate(entropy(7), secrets.utc_now)
    config = machines.configs(bundle, defaultdict(lambda: "word"), "kind: ConfigMap\n")["hgx-1"]
    return re.findall(r"address: (\S+/\d+)", config)


def rules(plan: SitePlan) -> Any:
    return security_policy("g", {}, plan.site.tenants, list(plan.site.models))["spec"]["authorization"]["rules"]


@pytest.mark.parametrize(
    ("path", "value", "seen"),
    [
        ("models.qwen3-32b.server.replicas", 3, replicas),
        ("models.qwen3-32b.slo.itl_p95_ms", 45.0, sequences),
        ("cluster.machines.nodes.hgx-1.address", "10.5.0.250", links),
        ("tenants.archive.models", ("glm-5-1",), rules),
    ],
)
def test_a_changed_value_arrives_at_its_object(path: str, value: Any, seen: Callable[[SitePlan], Any]) -> None:
    assert {re.sub(r"^(models|tenants|cluster\.machines\.nodes)\.[^.]+", r"\1.NAME", path)} <= walks().keys()
    assert seen(changed(path, value)) != seen(PROD)
