"""The lab's site with a real vLLM: what is written for it, and what the hub then has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lab.hub import held, made_up
from lab.paths import SITE_FILE, Lab
from lab.vllm_cpu import site
from stacks.plan.site_plan import plan_file

REPOSITORY, COMMIT = "Qwen/Qwen3-32B-FP8", "0" * 39 + "1"


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab of which it is chosen, by what it leaves."""
    monkeypatch.delenv("LAB_SITE_FILE", raising=False)
    lab = Lab(home=tmp_path, cache=tmp_path / "cache")
    lab.chosen_site.write_text(site.site_text(SITE_FILE.read_text()))
    lab.hub_model.mkdir()
    (lab.hub_model / "config.json").write_text("{}")
    return replace(lab, site_file=lab.chosen_site)


def test_it_is_a_site_with_one_model_that_vllm_serves(chosen: Lab) -> None:
    plan = plan_file(chosen.site_file)
    assert list(plan.models) == [site.MODEL]
    model = plan.models[site.MODEL].stable
    assert model.engine.owned_by == "Qwen"
    assert {f"--max-num-seqs={site.SEQUENCES}", f"--max-model-len={site.CONTEXT_TOKENS}"} <= set(model.engine.args)
    assert model.settings["max_num_queued_reqs"].whole == site.HELD
    assert model.settings["gateway_parallel_requests"].whole == 2 * site.HELD


def test_all_else_is_as_checked_in(chosen: Lab) -> None:
    ours, checked_in = (yaml.safe_load(file.read_text()) for file in (chosen.site_file, SITE_FILE))
    assert ours["encryptionsalt"] == checked_in["encryptionsalt"]
    differing = {
        key
        for key, value in checked_in["config"]["inference-platform:site"].items()
        if ours["config"]["inference-platform:site"][key] != value
    }
    assert differing == {"models", "tenants"}


def test_a_lab_keeps_its_choice_until_it_is_dropped(chosen: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_HOME", str(chosen.home))
    assert Lab.from_environment().site_file == chosen.chosen_site
    assert site.drop(chosen).site_file == SITE_FILE
    assert Lab.from_environment().site_file == SITE_FILE
    assert not chosen.hub_model.exists()


def test_the_hub_has_the_tiny_model_under_every_name_while_it_is_there(chosen: Lab) -> None:
    content = held.content_of(chosen.hub_model)
    assert content(REPOSITORY, COMMIT) == {"config.json": b"{}"}
    site.drop(chosen)
    assert content(REPOSITORY, COMMIT) == made_up.files(REPOSITORY, COMMIT)
