"""A canary with another release of the engine: its image and name, what is refused, and what is not known of it."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.facts import compatibility, versions
from stacks.facts.compatibility import Row
from stacks.plan import hub_revisions
from stacks.plan.conflicts import conflicts
from stacks.plan.images import site_images
from stacks.plan.site_plan import SitePlan, plan_values
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("001.06", "opening 23")

MODEL = "qwen3-32b"
CANARY, RELEASE = f"models.{MODEL}.canary", f"models.{MODEL}.canary.server.engine_release"
PINNED = versions.load().images.vllm
LATER = "9.9.0"


def trying(release: str | None = LATER, **server: Any) -> dict[str, Any]:
    own = {"replicas": 1, **server} | ({"engine_release": release} if release else {})
    return {"callers": {"decided_by": "gatekeeper"}, CANARY: {"percent": 5, "server": own}}


def plan(change: dict[str, Any]) -> SitePlan:
    return plan_values(changed(prod(), change), "site.yaml")


def test_the_canary_alone_runs_it_and_its_weights_are_brought_as_before() -> None:
    tried = plan(trying())
    model = tried.models[MODEL]
    assert model.canary and model.canary.weights
    image = f"{PINNED.rpartition(':')[0]}:v{LATER}"
    assert (model.canary.engine.image, model.stable.engine.image) == (image, PINNED)
    assert model.canary.weights.image == PINNED
    assert model.canary.name != MODEL
    # `bundle lock` and `images.locked` know it as any other.
    assert site_images(tried.site, tried.versions.images, tried.models, None)[image] == [f"model {model.canary.name}"]
    (warning,) = [problem for problem in tried.warnings if problem.key == RELEASE]
    assert "a replica that does not know an argument ends at its start" in warning.what


def test_without_a_release_nothing_is_another() -> None:
    canary = plan(trying(None, extra_args=["--seed=7"])).models[MODEL].canary
    assert canary and canary.engine.image == PINNED


def test_flags_and_models_are_judged_by_the_release_that_serves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As rows of the compatibility table and minimums of the catalogue know them."""
    row = Row(
        id="gone",
        verdict="illegal",
        when={"vllm": ">=9", "vllm_flags": "has --seed"},
        text="the flag is removed in release nine",
        fix="take it out",
        source="made up",
    )
    monkeypatch.setattr(compatibility, "table", lambda: (row,))
    pins = versions.load()
    assert not conflicts(pins, plan(trying("0.99.0", extra_args=["--seed=7"])).site)
    monkeypatch.setattr(compatibility, "table", lambda: ())
    site = plan(trying(extra_args=["--seed=7"])).site
    monkeypatch.setattr(compatibility, "table", lambda: (row,))
    (conflict,) = conflicts(pins, site)
    keys = {fact: key for fact, (_, key) in conflict.named.items()}
    assert keys["vllm"].endswith("server.engine_release")
    assert keys["vllm_flags"].endswith("server.extra_args")
    monkeypatch.setattr(hub_revisions, "release_of", lambda spec, _: spec.server.engine_release or "0.0.1")
    assert {problem.path[2] for problem in hub_revisions.engines_too_old(site, pins)} == {"catalogue"}


WRONG: dict[str, Wrong] = {
    "older": Wrong(trying("0.30.0"), RELEASE, "is older than the platform's release", {RELEASE: LATER}),
    "of the simulator": Wrong(
        {**trying(), "purpose": "trial", f"models.{MODEL}.server.engine": "simulator"},
        RELEASE,
        "this is its simulator",
        {RELEASE: None},
    ),
    "no release": Wrong(trying("latest"), RELEASE, "latest", {RELEASE: LATER}),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_at_its_key(wrong: Wrong) -> None:
    refused_and_fixed(wrong)
