"""A model is proven once in a run, by the plan alone; program, rules and commands work from that plan."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sitectl.cli import main
from stacks.plan.settings.definition import Serving, Setting
from stacks.plan.settings.registry import derive
from stacks.plan.site_plan import plan_file
from stacks.proof.case import Case
from stacks.proof.order import Order
from stacks.proof.proof import Proof
from stacks.proof.search import best
from stacks.site.loader import KEY
from tests.unit.spine.test_platform import declare

pytestmark = pytest.mark.row("opening 2")

ROOT = Path(__file__).parents[3]
PROD = ROOT / "Pulumi.prod.yaml"
MODELS = yaml.safe_load(PROD.read_text())["config"][KEY]["models"]
SETTLED, FREE = "the site's order", "a better layout"
# Calls of the proof and of its settings: the plan's own, fixes that are tried, and an entry that no site orders yet.
PROVERS = {"stacks/plan/models.py", "stacks/proof/fixes.py", "sitectl/commands/catalogue.py"}
DERIVERS = {"stacks/plan/models.py", "stacks/plan/settings/registry.py"}


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often a layout was searched, by model and by what for."""
    counted: Counter[tuple[str, str]] = Counter()

    def counting(order: Order) -> Case:
        counted[order.name, SETTLED if order.simple else FREE] += 1
        return best(order)

    monkeypatch.setattr("stacks.proof.proof.best", counting)
    return counted


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the settings of a model were derived."""
    counted: Counter[str] = Counter()

    def counting(proof: Proof, serving: Serving) -> dict[str, Setting]:
        counted[proof.order.name] += 1
        return derive(proof, serving)

    monkeypatch.setattr("stacks.plan.models.derive", counting)
    return counted


def test_the_program_proves_each_model_once(
    searches: Counter[tuple[str, str]], settings: Counter[str], tmp_path: Path
) -> None:
    site = plan_file(PROD).site
    searches.clear()
    settings.clear()
    declare(site, tmp_path)
    assert searches == {(name, what): 1 for name in MODELS for what in (SETTLED, FREE)}
    assert settings == dict.fromkeys(MODELS, 1)


@pytest.mark.parametrize(
    ("words", "better"),
    [
        (["validate", "prod"], False),
        (["proof", "prod"], True),
        (["proof", "--json", "prod"], True),
        (["explain", "--site", "prod", "models.glm-5-1.settings"], False),
    ],
)
def test_a_command_proves_each_model_once(
    words: list[str], better: bool, searches: Counter[tuple[str, str]], settings: Counter[str]
) -> None:
    assert main([*words, "--project", str(ROOT)]) == 0
    whats = (SETTLED, FREE) if better else (SETTLED,)
    assert searches == {(name, what): 1 for name in MODELS for what in whats}
    assert settings == dict.fromkeys(MODELS, 1)


def calls(function: str) -> Iterator[str]:
    """Files of the product that call this function by its name."""
    for package in ("stacks", "components", "policy", "bundle", "sitectl", "ci"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                    yield str(path.relative_to(ROOT))


def test_nobody_else_proves_or_derives() -> None:
    assert set(calls("prove")) == PROVERS
    assert set(calls("derive")) == DERIVERS
