"""A revision of a model is proven once in a run, by the plan alone; program, rules and commands work from it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from floor.revision_ids import RevisionId
from sitectl.shell.cli import main
from stacks.plan.settings.definition import Serving, Setting
from stacks.plan.settings.registry import derive
from stacks.plan.site_plan import SitePlan, plan_file
from stacks.proof.case import Case
from stacks.proof.order import Order
from stacks.proof.proof import Proof
from stacks.proof.search import best
from tests.unit.spine.test_platform import declare

pytestmark = pytest.mark.row("opening 2")

ROOT = Path(__file__).parents[3]
PROD = ROOT / "Pulumi.prod.yaml"
SETTLED, FREE = "the site's order", "a better layout"
# Calls of the proof and of its settings: the plan's own, fixes, nodes and GPUs that are tried, an entry that no site
# orders.
PROVERS = {
    "stacks/plan/models.py",
    "stacks/plan/advice.py",
    "stacks/plan/tenant_caches.py",
    "stacks/proof/fixes.py",
    "stacks/proof/several_nodes.py",
    "sitectl/commands/catalogue.py",
}
DERIVERS = {"stacks/plan/models.py", "stacks/plan/settings/registry.py"}


def once(plan: SitePlan, *whats: str) -> Counter[tuple[str, str]]:
    """One search for each revision of each model, by model and by what for."""
    return Counter((revision.model, what) for revision in plan.revisions for what in whats)


@pytest.fixture(autouse=True, scope="module")
def each_order_is_proven_once() -> None:
    """Proofs are counted here, so none is shared."""


@pytest.fixture
def prod() -> SitePlan:
    """The reference site's plan; take it before the counters."""
    return plan_file(PROD)


@pytest.fixture
def searches(prod: SitePlan, monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often a layout was searched, by model and by what for."""
    counted: Counter[tuple[str, str]] = Counter()
    ordered = [proof.order for proof in prod.proofs.values()]

    def counting(order: Order, known: Case | None) -> Case:
        # Others are what a warning tries: more replicas, raised targets.
        if order in ordered or not order.simple:
            counted[order.name, SETTLED if order.simple else FREE] += 1
        return best(order, known)

    monkeypatch.setattr("stacks.proof.proof.best", counting)
    return counted


@pytest.fixture
def settings(prod: SitePlan, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the settings of a model were derived."""
    counted: Counter[str] = Counter()

    def counting(proof: Proof, serving: Serving) -> dict[str, Setting]:
        counted[proof.order.name] += 1
        return derive(proof, serving)

    monkeypatch.setattr("stacks.plan.models.derive", counting)
    return counted


@pytest.mark.slow
def test_the_program_proves_each_revision_once(
    prod: SitePlan, searches: Counter[tuple[str, str]], settings: Counter[str], tmp_path: Path
) -> None:
    declare(prod.site, tmp_path)
    assert searches == once(prod, SETTLED, FREE)
    assert settings == Counter(revision.model for revision in prod.revisions)


@pytest.mark.parametrize(
    ("words", "better"),
    [
        (["validate", "prod"], False),
        (["proof", "prod"], True),
        (["proof", "--json", "prod"], True),
        (["explain", "--site", "prod", "models.glm-5-1.settings"], False),
    ],
)
def test_a_command_proves_each_revision_once(
    words: list[str], better: bool, prod: SitePlan, searches: Counter[tuple[str, str]], settings: Counter[str]
) -> None:
    assert main([*words, "--project", str(ROOT)]) == 0
    assert searches == once(prod, *((SETTLED, FREE) if better else (SETTLED,)))
    assert settings == Counter(revision.model for revision in prod.revisions)


def test_each_model_has_its_stable_revision_and_no_other(prod: SitePlan) -> None:
    assert {name: list(model.revisions) for name, model in prod.models.items()} == {
        "glm-5-1": [RevisionId("glm-5-1")],
        "qwen3-32b": [RevisionId("qwen3-32b")],
    }
    assert len({revision.digest for revision in prod.revisions}) == len(prod.revisions)


def calls(function: str) -> Iterator[str]:
    """Files of the product that call this function by its name."""
    for package in ("stacks", "components", "policy", "bundle", "sitectl", "ci"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                    yield str(path.relative_to(ROOT))


@pytest.mark.slow
def test_nobody_else_proves_or_derives() -> None:
    assert set(calls("prove")) == PROVERS
    assert set(calls("derive")) == DERIVERS
