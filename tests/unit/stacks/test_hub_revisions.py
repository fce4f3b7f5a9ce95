"""Which commit of a model a site serves, where it must name one, and which engine a model needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from components.models.model_server import deployment
from floor.problems import SiteError
from stacks.facts import catalogue, versions
from stacks.facts.catalogue import CatalogueModel, RemoteCode
from stacks.plan.hub_revisions import engines_too_old
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.site.model import SiteConfig
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.07", "000.40")

OWN = "5f0b02c75b57c5855da9ae460ce51323ea669d8a"
QWEN = "models.qwen3-32b.server"
VOLUME = {"storage.weights": {"source": "volume"}}


def args(change: dict[str, Any]) -> list[str]:
    plan = plan_values(changed(prod(), change), "Pulumi.prod.yaml")
    return plan.models["qwen3-32b"].stable.engine.args


def pinned(change: dict[str, Any]) -> str:
    """The commit that is brought, and that its servers mount and check; they are told of no other."""
    serving = plan_values(changed(prod(), change), "Pulumi.prod.yaml").models["qwen3-32b"].stable
    assert not [arg for arg in serving.engine.args if "revision" in arg]
    if serving.weights is None:
        return ""
    (wanted,) = serving.weights.order.wanted
    pod = deployment("qwen3-32b", "m", serving.spec.server, serving.server, serving.engine, serving.weights)
    text = json.dumps(pod)
    assert text.count(f"revisions/{wanted.revision}") == 2
    assert f"--revision={wanted.revision}" in text
    return wanted.revision


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Keys that the catalogue's entry of qwen3-32b has in place of its own."""
    replaced: dict[str, Any] = {}
    load = catalogue.load

    def patched(name: str) -> CatalogueModel:
        model = load(name)
        return model.model_copy(update=replaced) if name == "qwen3-32b-fp8" else model

    monkeypatch.setattr(catalogue, "load", patched)
    yield replaced


def test_downloaded_weights_are_of_the_catalogue_s_commit() -> None:
    assert pinned({}) == catalogue.load("qwen3-32b-fp8").revision
    assert pinned({"storage.weights": {"source": "hub"}}) == pinned({})


def test_the_site_s_own_commit_wins() -> None:
    assert pinned({f"{QWEN}.revision": OWN}) == OWN


def test_weights_that_the_site_brings_lie_under_the_same_commit_as_downloaded_ones() -> None:
    assert pinned(VOLUME) == pinned({})
    assert pinned(VOLUME | {f"{QWEN}.revision": OWN}) == OWN


def test_remote_code_runs_only_for_an_entry_that_names_it_and_from_the_same_commit(entry: dict[str, Any]) -> None:
    assert "--trust-remote-code" not in args({})
    entry["remote_code"] = RemoteCode(reason="its tokenizer needs it", files=("tokenization.py",))
    assert args({})[:2] == ["/models/weights", "--trust-remote-code"]


def test_a_site_names_the_commit_that_the_catalogue_lacks(entry: dict[str, Any]) -> None:
    entry["revision"] = ""
    with pytest.raises(SiteError) as refused:
        args({})
    (problem,) = refused.value.problems
    assert problem.key == f"{QWEN}.revision"
    assert "Qwen/Qwen3-32B-FP8" in problem.what
    assert "qwen3-32b-fp8.yaml" in problem.got
    assert problem.allowed
    assert "server.revision" in problem.fix
    assert pinned({f"{QWEN}.revision": OWN}) == OWN


def test_no_commit_is_needed_where_none_is_brought(entry: dict[str, Any]) -> None:
    entry["revision"] = ""
    assert pinned({"purpose": "trial", f"{QWEN}.engine": "simulator"}) == ""


@pytest.mark.parametrize("text", ["main", OWN[:39], f"{OWN}0", OWN.upper(), f"{OWN[:-1]}g", ""])
def test_a_commit_has_forty_digits(text: str) -> None:
    with pytest.raises(SiteError) as refused:
        args({f"{QWEN}.revision": text})
    (problem,) = refused.value.problems
    assert problem.key == f"{QWEN}.revision"
    assert "40 digits" in problem.what
    assert "write it like" in problem.fix


def test_the_digest_of_a_revision_changes_with_its_commit() -> None:
    plans = [plan_values(changed(prod(), change), "site.yaml") for change in ({}, {f"{QWEN}.revision": OWN})]
    first, second = (plan.models["qwen3-32b"].stable.digest for plan in plans)
    assert first != second


@pytest.mark.parametrize(("minimum", "refused"), [("0.32.0", 0), ("0.32.1", 1), ("0.4.2", 0), ("1.0.0", 1)])
def test_an_engine_that_is_too_old_for_a_model_is_refused(entry: dict[str, Any], minimum: str, refused: int) -> None:
    """The pinned vLLM is 0.32.0; 0.4.2 is older than that, and not newer, as text would have it."""
    entry["engine_version"] = minimum
    site = SiteConfig.model_validate(prod())
    reported = list(engines_too_old(site, versions.load()))
    assert [problem.key for problem in reported] == ["models.qwen3-32b.catalogue"] * refused
    for problem in reported:
        assert (minimum in problem.what, "0.32.0" in problem.got, bool(problem.fix)) == (True, True, True)


def test_every_entry_is_served_by_the_pinned_engine() -> None:
    pins = versions.load()
    for name in catalogue.names():
        site = SiteConfig.model_validate(prod())
        spec = site.models["qwen3-32b"].model_copy(update={"catalogue": name})
        assert list(engines_too_old(site.model_copy(update={"models": {"chat": spec}}), pins)) == []


def keys_of(plan: SitePlan) -> list[str]:
    """Keys of the warnings, but for those of speed and of locks."""
    return [warning.key for warning in plan.warnings if not warning.key.endswith((".slo", ".weights"))]


def test_licences_without_commercial_use_warn_a_production_site(entry: dict[str, Any]) -> None:
    entry["licence"] = "LicenseRef-minimax-non-commercial"
    plan = plan_values(prod(), "Pulumi.prod.yaml")
    assert keys_of(plan) == ["models.qwen3-32b.catalogue"]
    trial = plan_values(changed(prod(), {"purpose": "trial"}), "Pulumi.prod.yaml")
    assert keys_of(trial) == []
