"""`explain RESOURCE FIELD`: a field that follows from a model's proof says so, with formula and inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policy.model import Resource
from sitectl.offline import checkout
from sitectl.offline.derived_fields import derivations
from stacks.plan.site_plan import SitePlan, plan_file, plan_values
from tests.unit.sitectl.sites_to_work_on import ROOT, remembering, run

pytestmark = pytest.mark.row("opening 2")

ARGS = "spec.template.spec.containers.0.args"
# What the program renders of the proof; enable_expert_parallel is of models whose slices would not be whole blocks.
RENDERED = {
    "tensor_parallel_size",
    "kv_cache_dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_blocks",
    "picker_queue_threshold",
    "picker_shedding_threshold",
    "picker_kv_threshold",
    "start_budget_s",
    "startup_probe_failures",
    "cpu_request_cores",
    "memory_request_gib",
}


@pytest.fixture(scope="module")
def prod() -> SitePlan:
    return plan_file(ROOT / "Pulumi.prod.yaml")


def deployment(name: str, args: list[str], **labels: str) -> Resource:
    """A Deployment with one container."""
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "n", "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"args": args}]}}},
    }
    return Resource(type="kubernetes:apps/v1:Deployment", name=name, body=body)


def explained(folder: Path, *words: str) -> Any:
    return run(folder, "explain", "--json", "--site", "prod", *words).data


@pytest.mark.slow
def test_each_flag_of_the_engine_that_follows_from_the_proof_says_how(checkout_folder: Path, prod: SitePlan) -> None:
    shown = explained(checkout_folder, "deployment/qwen3-32b", ARGS)
    known = prod.models["qwen3-32b"].stable.settings
    reported = {entry["setting"]: entry for entry in shown["settings"]}
    assert set(reported) >= {"max_num_seqs", "max_model_len", "max_num_batched_tokens", "kv_cache_dtype"}
    for name, entry in reported.items():
        assert entry["at"].partition("=")[2] == str(known[name].value)
        assert entry["formula"] == known[name].formula
        assert entry["key"] == f"models.qwen3-32b.settings.{name}"
    assert reported["max_num_seqs"]["inputs"]["cache_bytes_per_gpu"] > 1e9
    again = explained(checkout_folder, reported["max_num_seqs"]["key"])
    assert (again["formula"], again["inputs"]) == (
        reported["max_num_seqs"]["formula"],
        reported["max_num_seqs"]["inputs"],
    )


def test_one_value_alone_and_in_words(checkout_folder: Path) -> None:
    field = "spec.template.spec.containers[0].startupProbe.failureThreshold"
    out = run(checkout_folder, "explain", "--site", "prod", "deployment/glm-5-1", field).out
    value, derived = out.split("\n\n")
    assert value.splitlines()[0].split() == ["object", "Deployment", "inference-models/glm-5-1"]
    assert "formula   start budget / period of 5 s" in derived
    assert "inputs    start_budget_s = " in derived


def test_the_pickers_configuration_is_text_and_known_all_the_same(checkout_folder: Path) -> None:
    shown = explained(checkout_folder, "configmap/qwen3-32b-epp", 'data["config.yaml"]')
    assert {entry["setting"] for entry in shown["settings"]} == {
        "kv_blocks",
        "max_model_len",
        "picker_queue_threshold",
        "picker_shedding_threshold",
        "picker_kv_threshold",
    }


@pytest.mark.parametrize("field", ["spec.replicas", "metadata"])
def test_what_follows_from_no_proof_says_nothing_of_one(checkout_folder: Path, field: str) -> None:
    assert explained(checkout_folder, "deployment/qwen3-32b", field)["settings"] == []


def test_every_rendered_setting_is_found_on_the_reference_site(checkout_folder: Path, prod: SitePlan) -> None:
    """Over whole objects: a renamed flag or a moved field shows here."""
    files = checkout.site_files(checkout_folder)
    resources = remembering(checkout_folder, files)["prod"].resources
    rendered = {entry["setting"] for resource in resources for entry in derivations(resource, prod, "", resource.body)}
    assert rendered >= RENDERED


def test_what_pickers_and_jobs_request_follows_from_no_proof(checkout_folder: Path, prod: SitePlan) -> None:
    """The reference site's pickers of qwen3-32b request two cores, as its replicas do."""
    resources = remembering(checkout_folder, checkout.site_files(checkout_folder))["prod"].resources
    explained_fields = {
        (resource.name, entry["setting"])
        for resource in resources
        for entry in derivations(resource, prod, "", resource.body)
        if entry["setting"] in {"cpu_request_cores", "memory_request_gib"}
    }
    assert explained_fields == {
        (f"{model}-server", setting) for model in prod.models for setting in ("cpu_request_cores", "memory_request_gib")
    }


def test_a_value_that_is_not_the_settings_is_not_said_to_follow_from_it(prod: SitePlan) -> None:
    known = prod.models["qwen3-32b"].stable.settings["max_num_seqs"].value
    for value, settings in ((known, ["max_num_seqs"]), (7, [])):
        engine = deployment("qwen3-32b", [f"--max-num-seqs={value}", "--max-num-seqs", "--port=8000"])
        assert [entry["setting"] for entry in derivations(engine, prod, "", engine.body)] == settings


def test_a_flag_without_a_value_is_a_yes() -> None:
    """Of a layout for which the engine needs whole experts."""
    words = {"name": "a", "cluster": {"kubeconfig": "k"}, "gateway": {"port": 80}, "tenants": {}}
    site = plan_values({**words, "models": {"m": {"catalogue": "qwen3-235b-a22b-fp8", "server": {"gpus": 8}}}}, "a")
    engine = deployment("m", ["--enable-expert-parallel"])
    whole = site.models["m"].stable.settings["enable_expert_parallel"].value
    assert whole is True
    assert [entry["setting"] for entry in derivations(engine, site, "", engine.body)] == ["enable_expert_parallel"]


def test_objects_of_no_model_and_of_a_model_by_label(prod: SitePlan) -> None:
    value = prod.models["qwen3-32b"].stable.settings["max_num_seqs"].value
    args = [f"--max-num-seqs={value}"]
    assert derivations(deployment("gateway", args), prod, "", {"args": args}) == []
    labelled = deployment("other", args, **{"app.kubernetes.io/instance": "qwen3-32b"})
    assert [entry["at"] for entry in derivations(labelled, prod, "", {"args": args})] == args


def test_an_override_says_its_reason(prod: SitePlan) -> None:
    """The object's field leads to who decided it."""
    override = {"max_num_seqs": {"value": 8, "reason": "the team wants short queues"}}
    words = {"name": "a", "cluster": {"kubeconfig": "k"}, "gateway": {"port": 80}, "tenants": {}}
    site = plan_values({**words, "models": {"m": {"catalogue": "qwen3-32b-fp8", "overrides": override}}}, "a")
    (reported,) = derivations(deployment("m", []), site, ARGS, ["--max-num-seqs=8"])
    assert (reported["origin"], reported["reason"]) == ("override", "the team wants short queues")
