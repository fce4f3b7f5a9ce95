"""Drafts and quantised weights of a site: the order that is proven, the engine's arguments, the settings, the plan."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from components.specs.model_server import SpeculativeSpec
from components.specs.weights import WeightsSpec
from floor.problems import SiteError
from services.weights.manifest import file_name
from stacks.facts import catalogue
from stacks.plan import optimisations
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import SitePlan, plan_file, plan_values
from stacks.plan.weights import without_safetensors
from stacks.proof.online_quantisation import ONLINE
from stacks.proof.speculation import METHODS
from stacks.proof.weights import weight_bytes
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.wrong_sites import Wrong, changed, refused_and_fixed

pytestmark = pytest.mark.row("001.22", "002.08", "003.03")

ROOT = Path(__file__).parents[3]
QWEN = "models.qwen3-32b.server"
NGRAM = {"method": "ngram", "tokens": 3, "acceptance": 0.5}
DRAFT = {"method": "draft", "catalogue": "qwen3-0.6b", "tokens": 2, "acceptance": 0.7}


@cache
def site() -> SitePlan:
    return plan_file(ROOT / "tests/fixtures/sites/valid/optimisations.yaml")


def revision(name: str) -> RevisionPlan:
    return site().models[name].stable


def argument(plan: RevisionPlan, flag: str) -> str:
    values = [arg.partition("=")[2] for arg in plan.engine.args if arg.startswith(f"{flag}=")]
    return values[0] if values else ""


def speculative(plan: RevisionPlan) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(argument(plan, "--speculative-config") or "{}")
    return config


def qwen(change: Mapping[str, Any]) -> RevisionPlan:
    return plan_values(changed(prod(), dict(change)), "Pulumi.prod.yaml").models["qwen3-32b"].stable


def test_each_method_is_one_of_vllm_by_its_own_name() -> None:
    assert speculative(revision("deepseek")) == {"method": "mtp", "num_speculative_tokens": 1}
    assert speculative(revision("small")) == {"method": "ngram", "num_speculative_tokens": 4}
    assert speculative(revision("llama")) == {
        "method": "draft_model",
        "num_speculative_tokens": 3,
        "model": "/models/draft",
    }
    assert speculative(revision("qwen")) == {}


def test_weights_are_quantised_where_the_site_says_so() -> None:
    assert argument(revision("llama"), "--quantization") == "fp8_per_tensor"
    assert argument(revision("qwen"), "--quantization") == "fp8_per_block"
    assert argument(revision("small"), "--quantization") == ""


def test_a_site_without_them_gets_neither_flag_nor_setting() -> None:
    plan = qwen({})
    assert not [arg for arg in plan.engine.args if "specul" in arg or "quantiz" in arg]
    assert not {"num_speculative_tokens", "tokens_per_step", "quantized_weights"} & plan.settings.keys()


@pytest.mark.parametrize("how", ["lazy", "eager", "prefetch"])
def test_vllm_reads_the_weights_as_the_site_says(how: str) -> None:
    plan = qwen({f"{QWEN}.loading": how})
    assert argument(plan, "--safetensors-load-strategy") == how
    assert argument(plan, "--load-format") == ""


def test_without_a_choice_vllm_has_its_own_way_to_read() -> None:
    assert not [arg for arg in qwen({}).engine.args if re.search("load-format|load-strategy|loader", arg)]
    assert qwen({f"{QWEN}.loading": "default"}).engine.args == qwen({}).engine.args


@pytest.mark.row("opening 10")
def test_ranks_of_a_tensor_parallel_group_share_one_stream() -> None:
    alone, eight = (
        plan_values(changed(prod(), {f"models.{name}.server.loading": "streamer"}), "Pulumi.prod.yaml")
        .models[name]
        .stable
        for name in ("qwen3-32b", "glm-5-1")
    )
    assert (alone.proof.case.layout.tensor, eight.proof.case.layout.tensor) == (1, 8)
    assert argument(alone, "--load-format") == argument(eight, "--load-format") == "runai_streamer"
    assert argument(alone, "--model-loader-extra-config") == ""
    assert json.loads(argument(eight, "--model-loader-extra-config")) == {"distributed": True}
    assert argument(eight, "--safetensors-load-strategy") == ""


@pytest.mark.parametrize(
    "layout",
    [{"tensor": 4, "data": 2, "expert_parallel": True}, {"tensor": 4, "pipeline": 2}],
    ids=["data", "pipeline"],
)
def test_a_stream_that_each_rank_would_read_by_itself_is_refused(layout: dict[str, Any]) -> None:
    glm = "models.glm-5-1.server"
    refused_and_fixed(
        Wrong(
            {f"{glm}.gpus": None, f"{glm}.layout": layout, f"{glm}.loading": "streamer"},
            f"{glm}.loading",
            "every other rank would read all files by itself",
            {f"{glm}.loading": "default"},
        )
    )


def test_an_entry_with_a_form_of_its_own_is_not_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    entry, load = catalogue.load("qwen3-32b-fp8"), catalogue.load
    apart = entry.model_copy(update={"engine_flags": (*entry.engine_flags, "--load-format=mistral")})
    monkeypatch.setattr(catalogue, "load", lambda name: apart if name == "qwen3-32b-fp8" else load(name))
    refused_and_fixed(
        Wrong(
            {f"{QWEN}.loading": "streamer"},
            f"{QWEN}.loading",
            "are loaded in a form of their own, by its entry",
            {f"{QWEN}.loading": None},
        )
    )


def test_files_that_are_no_safetensors_are_not_streamed() -> None:
    """By the catalogue's entry, or by the lock of the commit that is served."""
    embedder = {"models.bge": {"catalogue": "bge-m3", "server": {"loading": "streamer"}}}
    refused_and_fixed(
        Wrong(embedder, "models.bge.server.loading", "has no safetensors", {"models.bge.server.loading": "default"})
    )
    other = {"models.bge.server.revision": "a" * 40}
    assert plan_values(changed(prod(), {**embedder, **other}), "Pulumi.prod.yaml")


@pytest.mark.parametrize(("file", "problems"), [("pytorch_model.bin", 1), ("model-1-of-1.safetensors", 0)])
def test_a_lock_shows_whether_files_can_be_streamed(file: str, problems: int) -> None:
    spec = qwen({f"{QWEN}.loading": "streamer", f"{QWEN}.speculative": DRAFT}).spec
    draft = catalogue.load("qwen3-0.6b")
    lines = [f"# {draft.repository} at {draft.revision}"]
    for name in (file, "config.json"):
        lines += ["# 1 bytes", f"{'0' * 64}  {name}"]
    locks = {file_name(draft.repository, draft.revision): "\n".join(lines)}
    assert len([*without_safetensors("qwen3-32b", spec, WeightsSpec(), locks)]) == problems


def test_how_weights_are_read_changes_no_figure() -> None:
    """No factor is known for a shared volume."""
    times = [qwen({f"{QWEN}.loading": how}).proof.cold_start for how in ("default", "prefetch", "streamer")]
    assert times[0] == times[1] == times[2]


def test_a_draft_model_lies_in_a_folder_of_its_own_at_the_catalogues_commit() -> None:
    spec = SpeculativeSpec.model_validate(DRAFT)
    assert optimisations.speculative_config(spec)["model"] == "/models/draft"
    store = qwen({f"{QWEN}.speculative": DRAFT}).weights
    assert store
    assert store.order.wanted[1].revision == catalogue.load("qwen3-0.6b").revision


def test_volume_download_and_start_have_the_draft_models_files_too() -> None:
    with_draft, alone = qwen({f"{QWEN}.speculative": DRAFT}), qwen({})
    files = weight_bytes(catalogue.load("qwen3-0.6b")).files
    assert with_draft.server.weight_bytes - alone.server.weight_bytes == pytest.approx(files)
    assert with_draft.proof.cold_start["download_weights"].value > alone.proof.cold_start["download_weights"].value
    assert with_draft.server.load_s > alone.server.load_s


def test_settings_follow_from_drafts_and_show_how() -> None:
    settings = revision("small").settings
    assert (settings["num_speculative_tokens"].value, settings["num_speculative_tokens"].origin) == (4, "site")
    given = settings["tokens_per_step"]
    assert given.value == pytest.approx(sum(0.4**place for place in range(5)), abs=1e-3)
    assert given.inputs == {"num_speculative_tokens": 4, "acceptance": 0.4}
    assert revision("llama").settings["quantized_weights"].value == "fp8"
    files = revision("llama").settings["quantized_weights"].inputs["file_bytes"]
    stored = weight_bytes(catalogue.load("llama-3.3-70b")).files + weight_bytes(catalogue.load("llama-3.2-1b")).files
    assert files == pytest.approx(stored)


def test_batch_and_blocks_are_those_of_the_case_with_drafts() -> None:
    plan = qwen({f"{QWEN}.speculative": NGRAM})
    case, plain = plan.proof.case, qwen({}).proof.case
    assert case.order == replace(plain.order, speculation=case.order.speculation)
    assert case.slots != plain.slots
    assert argument(plan, "--max-num-seqs") == str(case.slots)
    assert argument(plan, "--max-num-batched-tokens") == str(case.batched_tokens)


def test_the_simulator_gives_tokens_at_the_pace_of_steps_with_drafts() -> None:
    """It knows no drafts: a token comes each step by the tokens of a step."""
    plan = revision("stand-in")
    case = plan.proof.case
    assert case.order.tokens_per_step == pytest.approx(1 + 0.8 + 0.64)
    assert argument(plan, "--inter-token-latency") == f"{round(case.decode_s(1) / 2.44 * 1e6)}us"
    assert not [arg for arg in plan.engine.args if "specul" in arg]
    full = case.decode_s(case.slots) / case.decode_s(1)
    assert argument(plan, "--time-factor-under-load") == f"{full:.2f}"


def test_an_answer_may_be_as_long_as_its_tokens_come() -> None:
    """Where no target says more, the longest answer is what a full batch gives in the time of a stream."""
    change = {"models.qwen3-32b.slo": None, f"{QWEN}.replicas": 4}
    plain, drafting = qwen(change), qwen(change | {f"{QWEN}.speculative": NGRAM})
    case = drafting.proof.case
    most = 600 / (case.decode_s(case.slots) / 1.875)
    assert drafting.settings["gateway_max_tokens"].whole == min(case.context, int(most))
    assert (
        plain.settings["gateway_max_tokens"].inputs["itl_ms"]
        != drafting.settings["gateway_max_tokens"].inputs["itl_ms"]
    )


def test_the_spec_offers_what_the_proof_knows() -> None:
    server = type(site().site.models["qwen"].server).model_fields
    assert set(ONLINE) == {word for word in ("fp8_per_tensor", "fp8_per_block") if word in str(server["quantization"])}
    assert all(method in str(SpeculativeSpec.model_fields["method"]) for method in METHODS)


def test_the_engine_must_be_new_enough_for_the_draft_model_too(monkeypatch: pytest.MonkeyPatch) -> None:
    load = catalogue.load

    def patched(name: str) -> catalogue.CatalogueModel:
        return load(name).model_copy(update={"engine_version": "99.0.0"} if name == "qwen3-0.6b" else {})

    monkeypatch.setattr(catalogue, "load", patched)
    with pytest.raises(SiteError) as caught:
        qwen({f"{QWEN}.speculative": DRAFT})
    (problem,) = caught.value.problems
    assert problem.key == f"{QWEN}.speculative.catalogue"
    assert "needs vLLM 99.0.0 or later" in problem.what
